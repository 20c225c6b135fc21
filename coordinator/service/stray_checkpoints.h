// Checkpoints that lie in the folder and are not in the store, because it was restored from an
// older copy: a store knows less then than the folder holds. Before the control loop starts.
#pragma once

#include "common/status.h"
#include "coordinator/logic/logic.h"
#include "coordinator/store/checkpoint_folder.h"
#include "coordinator/store/store.h"

namespace ringmaster::coordinator {

// Those that are whole and of their job go into `store` and `restored`; ids that others have are
// taken.
[[nodiscard]] Status AdoptStrays(const CheckpointFolder& folder, Store& store, Restored& restored);

}  // namespace ringmaster::coordinator
