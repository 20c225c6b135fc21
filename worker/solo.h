// `ringworker solo`: a script that was started by itself, as its first core's child: one worker, no
// coordinator, no port, and the bytes that a cluster of its class gives. Main thread.
#pragma once

namespace ringmaster::worker {

// The script's end of the core protocol is file descriptor 3. Returns the exit status.
[[nodiscard]] int SoloMain(int argc, const char* const* argv);

}  // namespace ringmaster::worker
