#include "kernels/cuda/cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/plan.h"
#include "kernels/elementwise.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kCandidates = 16;

void check(cublasStatus_t status, const char* call,
           const std::source_location& where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) throw CudaError(call, cublasLtGetStatusString(status), where);
}
#define LOCKSTEP_CUBLAS_CHECK(call) check((call), #call)

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      detail::wrong_dtype(DType::f32, dtype);
  }
}

// What an algorithm depends on.
struct Key {
  int device;
  std::int64_t rows, columns, depth;
  DType a, b, out;
  bool a_transposed, b_transposed;
  Epilogue epilogue;
  int alignment;  // of all addresses, in bytes, at most 16
  bool tf32, deterministic;

  Key(const ExecContext& exec, const Matmul& p, int gpu)
      : device(gpu),
        rows(p.rows),
        columns(p.columns),
        depth(p.depth),
        a(p.a.dtype),
        b(p.b.dtype),
        out(p.out.dtype),
        a_transposed(p.a.transposed),
        b_transposed(p.b.transposed),
        epilogue(p.epilogue),
        tf32(exec.allow_tf32),
        deterministic(exec.deterministic) {
    std::uintptr_t bits = 16;
    for (const void* address :
         {p.a.data, p.b.data, static_cast<const void*>(p.out.data), static_cast<const void*>(p.bias)}) {
      bits |= reinterpret_cast<std::uintptr_t>(address);
    }
    alignment = static_cast<int>(bits & (~bits + 1));
  }
  auto operator<=>(const Key&) const = default;

  // As it stands in messages and in the record of choices.
  std::string text() const {
    constexpr std::array epilogues = {"", " bias", " bias_relu", " bias_gradient"};
    return std::string("matmul ") + dtype_name(a) + " " + dtype_name(b) + " to " + dtype_name(out) + " (" +
           std::to_string(rows) + ", " + std::to_string(columns) + ", " + std::to_string(depth) + ") " +
           (a_transposed ? "t" : "n") + (b_transposed ? "t" : "n") + epilogues[static_cast<std::size_t>(epilogue)] +
           " aligned " + std::to_string(alignment) + (tf32 ? " tf32" : "") + (deterministic ? " deterministic" : "");
  }
};

template <class T, auto destroy>
struct Descriptor {
  T handle = nullptr;

  Descriptor() = default;
  ~Descriptor() { destroy(handle); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

using Layout = Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

// cuBLASLt is column-major, where a row-major matrix is its own transpose. So it computes out^T = b^T a^T: its first
// factor is b, its second a.
class Plan {
 public:
  Plan(const Key& key, void* bias) {
    LOCKSTEP_CUBLAS_CHECK(cublasLtMatmulDescCreate(
        &operation_.handle, key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    constexpr std::array epilogues = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
                                      CUBLASLT_EPILOGUE_BGRADB};
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[static_cast<std::size_t>(key.epilogue)]);
    if (key.epilogue != Epilogue::none) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(key.out));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);  // its alignment counts in the search
    }
    make(a_, key.a, key.a_transposed, key.rows, key.depth);
    make(b_, key.b, key.b_transposed, key.depth, key.columns);
    make(out_, key.out, false, key.rows, key.columns);
  }

  // Fills the list of algorithms, in the order in which cuBLASLt expects them to be fast.
  void find_algorithms(cublasLtHandle_t handle, const Key& key) {
    Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
    LOCKSTEP_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference.handle));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      LOCKSTEP_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Where the depth is split, the parts are added in f32 and in order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, static_cast<std::uint32_t>(key.alignment));
    }
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found;
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation_.handle, b_.handle, a_.handle, out_.handle, out_.handle,
                                       preference.handle, kCandidates, found.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    for (const auto& result : std::span(found).first(static_cast<std::size_t>(count))) {
      if (result.state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(result.algo);
    }
  }

  int algorithms() const { return static_cast<int>(algorithms_.size()); }

  void run(cublasLtHandle_t handle, const ExecContext& exec, const Matmul& p, int algorithm) {
    if (p.epilogue != Epilogue::none) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    const float one = 1;
    const float beta = p.accumulate ? 1.0F : 0.0F;
    LOCKSTEP_CUBLAS_CHECK(cublasLtMatmul(
        handle, operation_.handle, &one, p.b.data, b_.handle, p.a.data, a_.handle, &beta, p.out.data, out_.handle,
        p.out.data, out_.handle, &algorithms_[static_cast<std::size_t>(algorithm)],
        exec.workspace->reserve(kWorkspaceBytes), kWorkspaceBytes, static_cast<cudaStream_t>(exec.stream)));
  }

  int choice = -1;

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    LOCKSTEP_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation_.handle, attribute, &value, sizeof(value)));
  }
  // The layout of a row-major matrix that lies in memory transposed or not.
  static void make(Layout& layout, DType dtype, bool transposed, std::int64_t rows, std::int64_t columns) {
    if (transposed) std::swap(rows, columns);
    LOCKSTEP_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout.handle, data_type(dtype),
                                                     static_cast<std::uint64_t>(columns),
                                                     static_cast<std::uint64_t>(rows), columns));
  }

  Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  Layout a_, b_, out_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

// Of the whole process; never destroyed, like the memory that it works on.
struct Plans {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;  // by device
  std::map<Key, std::unique_ptr<Plan>> plans;

  static Plans& instance() {
    static auto* plans = new Plans;
    return *plans;
  }
  cublasLtHandle_t handle(int device) {
    cublasLtHandle_t& handle = handles[device];
    if (handle == nullptr) LOCKSTEP_CUBLAS_CHECK(cublasLtCreate(&handle));
    return handle;
  }
};

// cuBLASLt does not round f32 products to bf16: they go through the workspace, behind the part that cuBLASLt uses.
bool narrowed(const ExecContext& exec, Matmul product) {
  if (product.epilogue != Epilogue::none) return false;
  const GradView target = {product.out, product.accumulate};
  auto* const memory = static_cast<std::byte*>(exec.workspace->reserve(
      kWorkspaceBytes + static_cast<std::size_t>(target.view.numel() * dtype_bytes(DType::f32))));
  product.out.data = memory + kWorkspaceBytes;
  product.out.dtype = DType::f32;
  product.accumulate = false;
  if (!matmul(exec, product)) return false;
  accumulate(exec, product.out, target);
  return true;
}

}  // namespace

bool matmul(const ExecContext& exec, const Matmul& product) {
  if (product.a.dtype == DType::f32 && product.out.dtype == DType::bf16) return narrowed(exec, product);
  int device = 0;
  LOCKSTEP_CUDA_CHECK(cudaGetDevice(&device));
  const Key key(exec, product, device);
  Plans& all = Plans::instance();
  const std::lock_guard lock(all.mutex);
  cublasLtHandle_t handle = all.handle(device);
  std::unique_ptr<Plan>& plan = all.plans[key];
  if (plan == nullptr) {
    plan = std::make_unique<Plan>(key, product.bias);
    plan->find_algorithms(handle, key);
  }
  if (plan->algorithms() == 0) return false;
  if (plan->choice < 0) {
    plan->choice =
        choose(exec, key.text(),
               {.count = plan->algorithms(),
                .run = [&](int candidate, const ExecContext& own) { plan->run(handle, own, product, candidate); },
                .name = [](int candidate) { return "cublaslt " + std::to_string(candidate); }},
               {{product.out, product.accumulate}});
  }
  plan->run(handle, exec, product, plan->choice);
  return true;
}

}  // namespace lockstep::kernels::cuda
