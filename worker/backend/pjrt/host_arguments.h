// How a plugin's process is called, for both sides.
#pragma once

namespace ringmaster::pjrt {

inline constexpr const char* kHostProgram = "ringmaster_pjrt_host";
// The control socket. Its one argument is the parent's process id.
inline constexpr int kControlFile = 3;

}  // namespace ringmaster::pjrt
