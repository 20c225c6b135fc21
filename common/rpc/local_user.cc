#include "common/rpc/local_user.h"

#include <arpa/inet.h>
#include <grp.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/files.h"

namespace ringmaster {
namespace {

// From the kernel itself, which does not wait for anything.
constexpr timeval kDiagLimit{1, 0};
constexpr size_t kMostGroups = 65'536;  // NGROUPS_MAX

Status Unavailable(const char* what) {
  return Error(absl::StatusCode::kUnavailable, "{}: {}", what, std::strerror(errno));
}

// One end of a TCP connection.
struct End {
  int family = AF_INET;
  uint32_t address[4] = {};  // in network order
  uint16_t port = 0;         // likewise
};

// An IPv4 address in the clothes of IPv6 is what it stands for.
End EndOf(const sockaddr_storage& place) {
  End end;
  if (place.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(place);
    end.address[0] = v4.sin_addr.s_addr;
    end.port = v4.sin_port;
    return end;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(place);
  end.port = v6.sin6_port;
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(end.address, &v6.sin6_addr.s6_addr[12], 4);
  } else {
    end.family = AF_INET6;
    std::memcpy(end.address, &v6.sin6_addr, sizeof(end.address));
  }
  return end;
}

bool OnLoopback(const End& end) {
  if (end.family == AF_INET) return ntohl(end.address[0]) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(reinterpret_cast<const in6_addr*>(end.address));
}

struct DiagRequest {
  nlmsghdr header = {};
  inet_diag_req_v2 question = {};
};

DiagRequest QuestionAbout(const End& theirs, const End& ours) {
  DiagRequest request;
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.question.sdiag_family = static_cast<uint8_t>(theirs.family);
  request.question.sdiag_protocol = IPPROTO_TCP;
  request.question.idiag_states = ~0U;
  inet_diag_sockid& id = request.question.id;
  id.idiag_sport = theirs.port;
  id.idiag_dport = ours.port;
  std::memcpy(id.idiag_src, theirs.address, sizeof(theirs.address));
  std::memcpy(id.idiag_dst, ours.address, sizeof(ours.address));
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return request;
}

// A socket that nobody holds open belongs to root for the kernel, and has no inode: it is asked for
// after the owner, so that an inode proves the owner.
StatusOr<LocalUser> UserIn(const char* answer, size_t size) {
  nlmsghdr header = {};
  if (size < sizeof(header)) return Internal("sock_diag: {} bytes", size);
  std::memcpy(&header, answer, sizeof(header));
  const Status gone =
      Error(absl::StatusCode::kUnauthenticated, "nobody holds the other end of it open");
  if (header.nlmsg_type == NLMSG_ERROR && size >= NLMSG_LENGTH(sizeof(nlmsgerr))) {
    nlmsgerr error = {};
    std::memcpy(&error, answer + NLMSG_HDRLEN, sizeof(error));
    errno = -error.error;
    // Without tcp_diag in the kernel that is ENOENT, too; then no connection is ever found.
    return errno == ENOENT ? gone : Unavailable("sock_diag");
  }
  inet_diag_msg message = {};
  if (size < NLMSG_LENGTH(sizeof(message))) return Internal("sock_diag: {} bytes", size);
  std::memcpy(&message, answer + NLMSG_HDRLEN, sizeof(message));
  if (message.idiag_inode == 0 || message.idiag_state != TCP_ESTABLISHED) return gone;
  return LocalUser{message.idiag_uid, {}};
}

StatusOr<LocalUser> OwnerOf(const End& theirs, const End& ours) {
  const OwnedFile diag(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (diag.get() < 0) return Unavailable("no socket for sock_diag");
  (void)setsockopt(diag.get(), SOL_SOCKET, SO_RCVTIMEO, &kDiagLimit, sizeof(kDiagLimit));
  const DiagRequest request = QuestionAbout(theirs, ours);
  sockaddr_nl kernel = {};
  kernel.nl_family = AF_NETLINK;
  if (sendto(diag.get(), &request, sizeof(request), 0, reinterpret_cast<sockaddr*>(&kernel),
             sizeof(kernel)) < 0) {
    return Unavailable("sock_diag");
  }
  char answer[1'024];
  socklen_t length = sizeof(kernel);
  const ssize_t size = recvfrom(diag.get(), answer, sizeof(answer), 0,
                                reinterpret_cast<sockaddr*>(&kernel), &length);
  if (size < 0) return Unavailable("sock_diag");
  if (kernel.nl_pid != 0) return Internal("sock_diag: an answer that is not the kernel's");
  return UserIn(answer, static_cast<size_t>(size));
}

StatusOr<LocalUser> UnixPeer(int file) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Unavailable("SO_PEERCRED");
  }
  LocalUser user{peer.uid, std::vector<gid_t>(kMostGroups)};
  length = static_cast<socklen_t>(user.groups.size() * sizeof(gid_t));
  const bool known = getsockopt(file, SOL_SOCKET, SO_PEERGROUPS, user.groups.data(), &length) == 0;
  user.groups.resize(known ? length / sizeof(gid_t) : 0);
  user.groups.push_back(peer.gid);
  return user;
}

}  // namespace

StatusOr<std::optional<LocalUser>> UserBehind(int file) {
  sockaddr_storage theirs = {};
  sockaddr_storage ours = {};
  socklen_t length = sizeof(theirs);
  if (getpeername(file, reinterpret_cast<sockaddr*>(&theirs), &length) != 0) {
    return Error(absl::StatusCode::kUnauthenticated, "its other end is gone");
  }
  if (theirs.ss_family == AF_UNIX) return UnixPeer(file);
  length = sizeof(ours);
  if (getsockname(file, reinterpret_cast<sockaddr*>(&ours), &length) != 0) {
    return Unavailable("getsockname");
  }
  const End end = EndOf(theirs);
  if (!OnLoopback(end)) return std::nullopt;
  return OwnerOf(end, EndOf(ours));
}

bool IsOwn(const LocalUser& user, std::optional<gid_t> group) {
  if (user.uid == 0 || user.uid == geteuid()) return true;
  return group && std::find(user.groups.begin(), user.groups.end(), *group) != user.groups.end();
}

StatusOr<gid_t> GroupNamed(const std::string& name) {
  std::vector<char> room(size_t{1} << 16);
  group entry = {};
  group* found = nullptr;
  (void)getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found);
  if (found == nullptr) {
    return Error(absl::StatusCode::kNotFound, "this host has no group {}", name);
  }
  return found->gr_gid;
}

}  // namespace ringmaster
