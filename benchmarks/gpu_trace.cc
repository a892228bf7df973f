// What a GPU did, kernel by kernel, written by CUPTI while a program runs: a library that CUDA loads into it.
//
//   CUDA_INJECTION64_PATH=build/benchmarks/libgpu_trace.so GPU_TRACE_FILE=trace.csv PROGRAM ...
//
// One line for each kernel, copy and fill: begin and end in ns, stream, launch (the same number for all nodes of one
// graph launch), whether it is a node of a graph, name. gpu_trace.py reads it. Works on any program, PyTorch's too.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

constexpr std::size_t kBufferBytes = 8 << 20;

std::FILE* file = nullptr;

void write(std::uint64_t begin, std::uint64_t end, std::uint32_t stream, std::uint32_t launch, bool in_graph,
           const char* name) {
  std::fprintf(file, "%llu,%llu,%u,%u,%d,%s\n", static_cast<unsigned long long>(begin),
               static_cast<unsigned long long>(end), stream, launch, in_graph ? 1 : 0, name);
}

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *most_records = 0;
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
        write(kernel->start, kernel->end, kernel->streamId, kernel->correlationId, kernel->graphId != 0, kernel->name);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
        write(copy->start, copy->end, copy->streamId, copy->correlationId, copy->graphId != 0, "[copy]");
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        write(fill->start, fill->end, fill->streamId, fill->correlationId, fill->graphId != 0, "[fill]");
        break;
      }
      default:
        break;
    }
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
  std::fclose(file);
}

}  // namespace

extern "C" int InitializeInjection() {
  const char* path = std::getenv("GPU_TRACE_FILE");
  file = std::fopen(path != nullptr ? path : "gpu_trace.csv", "w");
  if (file == nullptr) {
    std::perror("gpu_trace: GPU_TRACE_FILE");
    return 0;
  }
  std::fprintf(file, "begin_ns,end_ns,stream,launch,in_graph,name\n");
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    cuptiActivityEnable(kind);
  }
  std::atexit(finish);
  return 1;
}
