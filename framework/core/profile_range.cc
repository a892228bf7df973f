#include "framework/core/profile_range.h"

#include <nvtx3/nvToolsExt.h>

namespace lockstep {

void ProfileRange::begin(const char* name) { nvtxRangePushA(name); }
void ProfileRange::end() { nvtxRangePop(); }

}  // namespace lockstep
