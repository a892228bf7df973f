#include "framework/core/gpu.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "framework/core/cuda_check.h"
#include "framework/core/error.h"

namespace lockstep {
namespace {

struct Answer {
  cudaError_t status;
  int count;
  int driver;  // the CUDA that it is for, as CUDART_VERSION; 0: there is none
};

Answer ask_driver() {
  Answer answer{};
  answer.status = cudaGetDeviceCount(&answer.count);
  cudaGetLastError();
  if (cudaDriverGetVersion(&answer.driver) != cudaSuccess) answer.driver = 0;
  return answer;
}

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

GpuCount gpu_count_of(const Answer& answer) {
  if (answer.status == cudaSuccess && answer.count > 0) return {answer.count, {}};
  if (answer.status == cudaSuccess) return {0, "none is visible"};
  if (answer.driver == 0) return {0, "no NVIDIA driver is installed"};
  if (answer.status != cudaErrorInsufficientDriver) return {0, cudaGetErrorString(answer.status)};
  return {0, fmt::format("the driver is for CUDA {}, and this build needs one for {}", cuda_text(answer.driver),
                         cuda_text(CUDART_VERSION))};
}

std::atomic<int> selected{-1};

}  // namespace

GpuCount count_gpus() { return gpu_count_of(ask_driver()); }

GpuCount count_gpus_in_child() {
  std::array<int, 2> channel{};
  if (::pipe(channel.data()) != 0) throw Error("GPUs cannot be counted: no pipe to a child process");
  const pid_t child = ::fork();
  if (child == 0) {
    const Answer answer = ask_driver();
    const bool written = ::write(channel[1], &answer, sizeof(answer)) == sizeof(answer);
    ::_exit(written ? 0 : 1);
  }
  ::close(channel[1]);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  int status = 0;
  pid_t ended = 0;
  while (child > 0 && (ended = ::waitpid(child, &status, WNOHANG)) == 0) {
    const auto late = std::chrono::steady_clock::now() - deadline;
    if (late > std::chrono::seconds(0)) ::kill(child, SIGKILL);
    if (late > std::chrono::seconds(5)) {  // asleep in the driver, where no signal wakes it
      ::close(channel[0]);
      return {0, "the driver does not answer"};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  Answer answer{};
  const bool read = ::read(channel[0], &answer, sizeof(answer)) == sizeof(answer);
  ::close(channel[0]);
  if (!read) return {0, "the driver does not answer"};
  return gpu_count_of(answer);
}

void select_gpu(int index) {
  const int before = selected;
  expect(before < 0 || before == index,
         "GPU: expected {}, which this process uses already, got {}; a process drives one GPU", before, index);
  const GpuCount visible = count_gpus();
  expect(visible.count > 0, "GPU {}: expected a GPU, got none: {}", index, visible.why_none);
  expect(index >= 0 && index < visible.count, "GPU {}: expected one of the {} that are visible here (0 to {})", index,
         visible.count, visible.count - 1);
  check_cuda(cudaSetDevice(index), "cudaSetDevice");
  selected = index;
}

void bind_thread_to_gpu() {
  if (const int index = selected; index >= 0) check_cuda(cudaSetDevice(index), "cudaSetDevice");
}

GpuInfo selected_gpu() {
  GpuInfo info;
  info.index = selected;
  expect(info.index >= 0, "GPU: expected a context on a GPU, got none");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, info.index), "cudaGetDeviceProperties");
  info.name = properties.name;
  info.uuid = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) info.uuid += '-';
    info.uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  check_cuda(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "cudaMemGetInfo");
  return info;
}

}  // namespace lockstep
