#include "cli/link_option.h"

#include "cli/nccl_log_files.h"
#include "framework/core/context.h"
#include "framework/distributed/environment.h"

namespace lockstep::cli {

LinkPolicy switch_link(const LinkArguments& arguments) {
  LinkPolicy policy = apply_link_mode(parse_link_mode(arguments.link));
  if (kernels::kHasCuda && detect_environment().launcher != Launcher::none) keep_own_nccl_log();
  return policy;
}

bool says_link(const LinkArguments& arguments) {
  return context().device() == DeviceType::cuda || parse_link_mode(arguments.link) != LinkMode::automatic;
}

}  // namespace lockstep::cli
