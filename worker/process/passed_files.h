// Files that one process passes to another with a message over a local socket (SCM_RIGHTS).
// Values; thread-compatible. It sends and receives nothing itself.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "common/files.h"

namespace ringmaster {

// Room for the control part of one message, which must outlive its sendmsg or recvmsg.
class PassedFiles {
 public:
  static constexpr size_t kMost = 4;  // files of a message

  // Has `message` carry `files`, kMost of them at most; none: nothing.
  void SendWith(msghdr* message, std::span<const int> files) {
    if (files.empty()) return;
    message->msg_control = space_.data();
    message->msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const control = CMSG_FIRSTHDR(message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(control), files.data(), files.size_bytes());
  }

  // Before each recvmsg, which wants MSG_CMSG_CLOEXEC.
  void ReceiveWith(msghdr* message) {
    message->msg_control = space_.data();
    message->msg_controllen = space_.size();
  }

  // What came with a message: its files, which are the caller's now, and, where the socket asks for
  // it (SO_PASSCRED), the user that sent it, by the kernel's word.
  struct Received {
    std::vector<OwnedFile> files;
    std::optional<uid_t> user;
  };
  [[nodiscard]] static Received Of(msghdr* message) {
    Received received;
    for (cmsghdr* control = CMSG_FIRSTHDR(message); control != nullptr;
         control = CMSG_NXTHDR(message, control)) {
      if (control->cmsg_level != SOL_SOCKET) continue;
      const uint8_t* const data = CMSG_DATA(control);
      if (control->cmsg_type == SCM_RIGHTS) {
        const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
          int file = -1;
          std::memcpy(&file, data + i * sizeof(int), sizeof(int));
          received.files.emplace_back(file);
        }
      } else if (control->cmsg_type == SCM_CREDENTIALS) {
        ucred sender = {};
        std::memcpy(&sender, data, sizeof(sender));
        received.user = sender.uid;
      }
    }
    return received;
  }

 private:
  alignas(cmsghdr)
      std::array<char, CMSG_SPACE(sizeof(int) * kMost) + CMSG_SPACE(sizeof(ucred))> space_ = {};
};

}  // namespace ringmaster
