#include "common/rpc/channel.h"

#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "common/net/socket.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/listener.h"
#include "common/text.h"

namespace ringmaster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstBackoff{50};
// Of one attempt, with its handshake on a host that is busy: one that is given up too early makes
// the host busier.
constexpr milliseconds kConnectLimit{3'000};
constexpr milliseconds kSlice{20};  // between two looks at `stop`

constexpr size_t kMaxRefusal = 1'024;
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // RFC 9113, 3.4

// Whether what was heard is the beginning of a refusal, of which more will come.
bool IsCutOff(const std::string& heard) {
  const std::string_view forbidden = kForbidden;
  if (!heard.starts_with(forbidden)) return forbidden.starts_with(heard);
  return heard.size() < kMaxRefusal && heard.find('\n', forbidden.size()) == std::string::npos;
}

// What comes on a connection until it ends, or is a refusal, or can be none.
std::string Hear(const OwnedFile& file, steady_clock::time_point until) {
  std::string heard;
  while (IsCutOff(heard)) {
    if (!AwaitSocket(file.get(), POLLIN, until, "a refusal").ok()) break;
    char bytes[kMaxRefusal];
    const ssize_t count = recv(file.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count <= 0) break;
    heard.append(bytes, static_cast<size_t>(count));
  }
  return heard;
}

}  // namespace

grpc::ChannelArguments ChannelOptions(milliseconds longest_backoff) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstBackoff.count()));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kConnectLimit.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(longest_backoff.count()));
  return arguments;
}

StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Dialer::CredentialsFor(
    const Address& address, const ExpectedPeer& peer) const {
  if (!folder_.empty() && (peer.kind == pki::Kind::kCoordinator || !IsLoopback(address.host))) {
    return ChannelTls(folder_, peer);
  }
  if (IsLoopback(address.host)) return grpc::InsecureChannelCredentials();
  return FailedPrecondition(
      "it is not on this host, where there is only TLS, and this process has no certificate");
}

std::shared_ptr<grpc::Channel> Dialer::Dial(const Address& address, const ExpectedPeer& peer,
                                            grpc::ChannelArguments arguments) const {
  auto credentials = CredentialsFor(address, peer);
  if (!credentials.ok()) {
    spdlog::error("no connection to {} can be made: {}", address.ToString(),
                  Message(credentials.status()));
    credentials = nullptr;  // then gRPC makes a channel that fails
  }
  if (!folder_.empty()) SetServerName(peer.kind, &arguments);
  return grpc::CreateCustomChannel(address.Target(), *credentials, arguments);
}

std::string Dialer::Issue() const {
  char generation[256];  // what the folder's link leads to
  const ssize_t length = readlink(folder_.c_str(), generation, sizeof(generation));
  return length <= 0 ? "" : std::string(generation, static_cast<size_t>(length));
}

bool AwaitConnection(grpc::Channel& channel, steady_clock::time_point until,
                     const std::function<bool()>& stop) {
  while (!stop()) {
    const auto left = std::clamp<steady_clock::duration>(until - steady_clock::now(),
                                                         steady_clock::duration::zero(), kSlice);
    const int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    // As a span, so that nobody who sets the clock changes it.
    if (channel.WaitForConnected(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                              gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN)))) {
      return true;
    }
    if (left < kSlice) return false;
  }
  return false;
}

std::string RefusalAt(const Address& address, milliseconds limit) {
  if (IsUnix(address)) return "";  // whose file says it
  const steady_clock::time_point until = steady_clock::now() + limit;
  const auto file = ConnectTo(address, until);
  if (!file.ok()) return "";
  // A port that also takes TLS waits for what comes first.
  (void)send(file->get(), kPreface, std::strlen(kPreface), MSG_NOSIGNAL | MSG_DONTWAIT);
  const std::string heard = Hear(*file, until);
  if (!heard.starts_with(kForbidden)) return "";
  const std::string words = heard.substr(std::strlen(kForbidden));
  return OneLine(words.substr(0, words.find('\n')), kMaxRefusal);
}

}  // namespace ringmaster
