#include "framework/interconnect/claims.h"

namespace lockstep {
namespace {

constexpr Claim kClaims[] = {
    {.name = "bandwidth-256",
     .chinese = "NVLink 的带宽可达 256 GB/s，是 PCIe 3.0 的 5 倍。",
     .english = "NVLink has 256 GB/s, 5 times PCIe 3.0.",
     .right =
         "No product has 256 GB/s. In one direction a GPU has 80 (P100), 150 (V100), 300 (A100), 450 (H100, H200) or "
         "900 GB/s (B200); the 5 times are the P100's, beside the 15.75 GB/s of PCIe 3.0 x16.",
     .source = "NVIDIA's whitepapers on each architecture; PCIe: rate x lanes x line coding",
     .test =
         "The NVLinks of a GPU make 256 GB/s in one direction or both, and 5 times the 15.75 GB/s of PCIe 3.0 x16."},
    {.name = "latency-tenth",
     .chinese = "NVLink 的延迟只有约 100 纳秒，是 PCIe 的十分之一。",
     .english = "NVLink's latency is about 100 ns, a tenth of PCIe's.",
     .right = "A load through NVSwitch takes about 0.8 us, a write between GPUs 2 to 3 us, as over PCIe peer-to-peer "
              "(2 us). "
              "Five to ten times less it is only beside staging through the host (11 to 22 us).",
     .source = "published runs of nvbandwidth and p2pBandwidthLatencyTest; Li et al., arXiv 1903.04611",
     .test = "Small all-reduces take a tenth over NVLink of what they take staged. Their launch alone takes "
             "microseconds, so "
             "that 100 ns cannot be seen in them."},
    {.name = "lanes-64",
     .chinese = "NVLink 有 64 条通道，是 PCIe 的 4 倍。",
     .english = "NVLink has 64 lanes, 4 times those of PCIe.",
     .right = "64 counts the P100's 4 links x 8 lanes in both directions, the 16 of PCIe one direction. Counted alike "
              "it is 32 "
              "(P100), 48 (V100, A100) or 36 (H100, H200) beside 16, each at a rate of its own.",
     .source = "NVIDIA's whitepapers on each architecture",
     .test = "The NVLinks of a GPU have 64 lanes in one direction, and its PCIe link has 16."},
    {.name = "bandwidth-300",
     .chinese = "NVLink 带宽 300 GB/s，而 PCIe 只有 16 GB/s。",
     .english = "NVLink has 300 GB/s, PCIe only 16 GB/s.",
     .right = "A V100's 300 GB/s are both directions of all its links, to all its peers; 16 is one direction of PCIe "
              "3.0. Like "
              "for like it is 150 beside 15.75 GB/s, and 25 or 50 between two GPUs without NVSwitch.",
     .source = "NVIDIA V100 whitepaper; Li et al., arXiv 1903.04611",
     .test = "The NVLinks of a GPU make 300 GB/s in one direction, and its PCIe link 16."},
    {.name = "training-2-5",
     .chinese = "使用 NVLink 后，训练速度可提升 2 到 5 倍（NVIDIA 官方数据）。",
     .english = "Training becomes 2 to 5 times faster with NVLink (NVIDIA's own figure).",
     .right =
         "NVIDIA's own figure for training is at most 1.5 times. 1.0 to 1.3 is usual, 1.4 to 1.5 with large models and "
         "small batches, and more than 2 only where a step is mostly communication that is staged or goes by sockets.",
     .source =
         "NVIDIA DGX-1 V100 whitepaper; Tallent et al., PMBS 2017; Hugging Face's and Baskerville's published runs",
     .test =
         "Every training compared here over NVLink and staged is proven, and its whole interval lies at 2 or above."},
    {.name = "needs-v100",
     .chinese = "需要 V100 或更新的 GPU 才支持 NVLink。",
     .english = "NVLink needs a V100 or a later GPU.",
     .right =
         "It came with the P100 in 2016. Later is no guarantee: T4, L4, L40S and the GeForce RTX 40 and 50 series have "
         "none, and PCIe cards such as A40, A6000 or RTX 3090 only with a bridge.",
     .source = "NVIDIA's whitepapers and data sheets",
     .test = "No machine can confirm a need. One with an older GPU whose NVLinks are active refutes it."},
    {.name = "device-names",
     .chinese = "打印显卡名称即可判断是否支持 NVLink。",
     .english = "Printing the device names shows whether NVLink is supported.",
     .right = "One and the same name is sold with links, with a bridge or with none. Ask the driver which links are "
              "active and "
              "where each ends: lockstep topology, or nvidia-smi nvlink -s.",
     .source = "NVML (nvmlDeviceGetNvLinkState); reports of wrong detection by name in inference libraries",
     .test = "No machine can confirm it. One where GPUs of a name differ in links, or have links that are off, refutes "
             "it."},
    {.name = "joins-cpus",
     .chinese = "NVLink 用于连接 GPU 与 GPU、GPU 与 CPU。",
     .english = "NVLink joins GPUs with each other, and GPUs with CPUs.",
     .right = "GPUs, yes. CPUs only on POWER8 and POWER9, and on Grace by NVLink-C2C; a GPU in an x86 host reaches the "
              "processor and its memory over PCIe.",
     .source = "NVML (nvmlDeviceGetNvLinkRemoteDeviceType); NVIDIA's documents on Grace Hopper",
     .test = "The driver names a processor as the far end of an active link."},
    {.name = "driver-alone",
     .chinese = "安装驱动后，系统会自动识别并启用 NVLink。",
     .english = "With the driver installed, the system finds and enables NVLink by itself.",
     .right = "Mostly. Machines with NVSwitch also need the fabric manager, of the driver's version; cards need their "
              "bridge; "
              "containers, virtual machines and settings can take it away again. NCCL uses what is active without "
              "being told.",
     .source = "NVIDIA Fabric Manager user guide; NCCL user guide",
     .test = "All links are active, nothing is at fault, and NCCL's bytes were seen on NVLink in mode auto, with no "
             "setting for it."},
    {.name = "frameworks-configured",
     .chinese = "需要在深度学习框架中进行配置才能使用 NVLink。",
     .english = "Frameworks must be configured to use NVLink.",
     .right = "No. NCCL picks NVLink by itself wherever the driver reports it; settings can only take it away "
              "(NCCL_P2P_DISABLE=1). What must be chosen is parallel training.",
     .source = "NCCL user guide, environment variables",
     .test = "NCCL's bytes stay off NVLink until something is set. Seen on NVLink in mode auto, with no setting for "
             "it, they refute it."},
    {.name = "mainboard",
     .chinese = "主板必须支持 NVLink。",
     .english = "The mainboard must support NVLink.",
     .right = "GPUs of the SXM kind sit on a board of their own that has the links; PCIe cards are joined by a bridge "
              "on top, in "
              "any mainboard with two fitting slots.",
     .source = "NVIDIA's documents on HGX boards and NVLink bridges",
     .test = "Not measurable: the driver tells where a link ends, not whether a board or a bridge carries it."},
    {.name = "larger-models",
     .chinese = "NVLink 让你可以训练更大的模型、使用更多的数据。",
     .english = "NVLink allows larger models and more data.",
     .right = "It adds no memory. In data parallelism each GPU holds the whole model with or without it; models that "
              "are sharded "
              "or split over GPUs grow with their number, and NVLink makes that faster.",
     .source = "Rajbhandari et al., ZeRO, arXiv 1910.02054",
     .test = "A GPU holds less of the model's gradients over NVLink than staged."},
    {.name = "data-parallel",
     .chinese = "在 PyTorch 中用 DataParallel 或 DistributedDataParallel 即可利用 NVLink。",
     .english = "In PyTorch, use DataParallel or DistributedDataParallel to make use of NVLink.",
     .right = "DistributedDataParallel, with one process a GPU. DataParallel is one process for all, copies the model "
              "in every "
              "step, and PyTorch advises against it. Tensor, pipeline and sharded parallelism use NVLink too.",
     .source = "PyTorch's documentation of DataParallel",
     .test = "Not measured by this command: lockstep with-link nvlink -- torchrun ... counts the bytes of a PyTorch "
             "script."},
    {.name = "graphics",
     .chinese = "NVLink 还能加速图形渲染。",
     .english = "NVLink speeds up graphics, too.",
     .right = "Only programs written for several GPUs, such as some renderers. New SLI profiles ended in 2021, the "
              "GeForce RTX "
              "40 series has no NVLink, and server GPUs such as the H200 have no display.",
     .source = "NVIDIA's announcement on SLI of September 2020",
     .test = "Not measurable: nothing is drawn here."},
};

}  // namespace

std::span<const Claim> claims() { return kClaims; }

const char* claim_verdict_name(ClaimVerdict verdict) {
  switch (verdict) {
    case ClaimVerdict::reproduced:
      return "reproduced";
    case ClaimVerdict::not_reproduced:
      return "not reproduced";
    case ClaimVerdict::not_measurable:
      return "not measurable here";
    case ClaimVerdict::emulated:
      return "emulated";
  }
  return "";
}

}  // namespace lockstep
