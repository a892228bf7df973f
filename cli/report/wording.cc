#include "cli/report/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "framework/interconnect/link_policy.h"
#include "framework/interconnect/link_proof.h"
#include "models/registry.h"

namespace lockstep::cli {
namespace {

std::string model_title(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kTitles[] = {
      {"vgg", "VGG-"}, {"resnet", "ResNet-"}, {"gpt", "GPT-"}, {"mlp", "MLP"}, {"lenet", "LeNet-5"}, {"vit", "ViT"}};
  for (const auto& [start, title] : kTitles) {
    if (name.rfind(start, 0) == 0) return std::string(title) + name.substr(start.size());
  }
  return name;
}

const char* sample_word(const std::string& model) {
  const std::vector<std::string> known = model_names();
  const bool is_known = std::find(known.begin(), known.end(), model) != known.end();
  return is_known && usual_input(model).sample_shape.rank() == 3 ? "images" : "samples";
}

// " 4" of "nvlink4": an emulated link is of a generation.
std::string generation_of(const std::string& link) {
  const std::size_t digit = link.find_first_of("0123456789");
  return digit == std::string::npos ? "" : fmt::format(" {}", link[digit]);
}

bool starts_with(const std::string& text, std::string_view start) { return text.rfind(start, 0) == 0; }
bool is_peer(const std::string& link) { return link.find("-p2p") != std::string::npos; }

}  // namespace

std::string describe_training(const CaseFigures& figures) {
  return fmt::format("{} at {} {} a {}", model_title(figures.model), figures.batch_per_rank, sample_word(figures.model),
                     figures.on_gpus ? "GPU" : "rank");
}

std::string link_name(const ArmFigures& arm, bool emulated) {
  const std::string generation = generation_of(arm.link);
  const char* suffix = emulated ? ", emulated" : "";
  if (starts_with(arm.link, "nvlink")) return fmt::format("NVLink{}{}", generation, suffix);
  if (is_peer(arm.link)) return fmt::format("PCIe{} peer-to-peer{}", generation, suffix);
  if (starts_with(arm.link, "pcie")) {
    return fmt::format("PCIe{}{}{}", generation, arm.path == kStagedOverPcie ? ", staged" : "", suffix);
  }
  if (arm.link == "net") return "network";
  if (arm.link == "auto") return "NCCL's choice";
  return arm.link;
}

std::string link_phrase(const ArmFigures& arm, bool emulated) {
  const std::string emulated_word = emulated ? "emulated " : "";
  const std::string generation = generation_of(arm.link);
  if (starts_with(arm.link, "nvlink")) return fmt::format("with {}NVLink{}", emulated_word, generation);
  if (is_peer(arm.link)) return fmt::format("peer-to-peer over {}PCIe{}", emulated_word, generation);
  if (starts_with(arm.link, "pcie")) {
    return fmt::format("{}over {}PCIe{}", arm.path == kStagedOverPcie ? "staged " : "", emulated_word, generation);
  }
  if (arm.link == "net") return "over the network";
  if (arm.link == "auto") return "on the link that NCCL chooses";
  return "over " + arm.link;
}

std::string ms_figure(const std::optional<double>& ms) {
  if (!ms) return kNotMeasured;
  const double size = std::abs(*ms);
  return size >= 1000  ? fmt::format("{:.0f}", *ms)
         : size >= 100 ? fmt::format("{:.1f}", *ms)
                       : fmt::format("{:.2f}", *ms);
}

std::string ms_text(double ms) { return ms_figure(ms) + " ms"; }

std::string times_text(double ratio) { return fmt::format("{:.2f}x", ratio); }

std::string range_text(const Figured& ratio) {
  return ratio.low && ratio.high ? fmt::format("{:.2f}-{:.2f}", *ratio.low, *ratio.high) : kNotMeasured;
}

std::string interval_text(const Figured& ratio) { return "95 % interval " + range_text(ratio); }

std::string size_text(std::int64_t bytes) {
  constexpr std::pair<std::int64_t, const char*> kUnits[] = {
      {std::int64_t{1} << 30, "GiB"}, {std::int64_t{1} << 20, "MiB"}, {std::int64_t{1} << 10, "KiB"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes >= unit) return fmt::format("{:.3g} {}", static_cast<double>(bytes) / static_cast<double>(unit), name);
  }
  return fmt::format("{} B", bytes);
}

std::string rate_text(const std::optional<double>& gb_s) {
  return gb_s ? fmt::format("{:.3g} GB/s", *gb_s) : kNotMeasured;
}

std::string factor_text(double slow_motion) {
  return slow_motion < 100 ? fmt::format("{:.3g}", slow_motion) : fmt::format("{:.0f}", slow_motion);
}

std::string proof_text(const CaseFigures& figures) {
  if (figures.emulated) return "emulated in slow motion, factor " + factor_text(figures.slow_motion);
  Verdict worst = Verdict::proven;
  bool all_have_one = true;
  for (const ArmFigures& arm : figures.arms) {
    const std::optional<Verdict> verdict = parse_verdict(arm.proof);
    worst = worse_of(worst, verdict.value_or(Verdict::unproven));
    all_have_one = all_have_one && verdict;
  }
  return worst != Verdict::unproven || all_have_one ? verdict_name(worst) : "link not proven";
}

std::vector<std::string> doubts_of(const CompareFile& file) {
  std::vector<std::string> doubts;
  for (const CaseFigures& figures : file.cases) {
    for (const ArmFigures& arm : figures.arms) {
      const std::string of =
          (file.cases.size() > 1 ? describe_training(figures) + ": " : "") + link_name(arm, figures.emulated);
      if (arm.disturbing > 0) {
        doubts.push_back(
            fmt::format("{} was disturbed: {} collectives took the ranks longer than the emulated link; a "
                        "larger --slow-motion helps",
                        of, arm.disturbing));
      }
      if (parse_verdict(arm.proof).value_or(Verdict::proven) == Verdict::proven) continue;
      doubts.push_back(fmt::format("{} is {}: {}", of, arm.proof, arm.proof_reason));
    }
  }
  return doubts;
}

std::string headline(const CaseFigures& figures) {
  const ArmFigures& fast = figures.arms[0];
  const ArmFigures& slow = figures.arms[1];
  const Figured& speedup = *figures.speedup;
  const bool differs = speedup.low && speedup.high && (*speedup.low > 1 || *speedup.high < 1);
  return fmt::format("24 h {} {} {:.3g} h {}{} for {}", link_phrase(slow, figures.emulated),
                     differs ? "become" : "stay about", 24 / speedup.value, link_phrase(fast, figures.emulated),
                     fast.link == slow.link ? " again" : "", describe_training(figures));
}

std::string evidence_text(const CaseFigures& figures) {
  return fmt::format("{}, {}, {}", times_text(figures.speedup->value), interval_text(*figures.speedup),
                     proof_text(figures));
}

std::string sentence(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text + ".";
}

}  // namespace lockstep::cli
