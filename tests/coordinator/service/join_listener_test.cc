// What a JoinListener takes, and what it says of who breaks off.
#include "coordinator/service/join_listener.h"

#include <poll.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <sstream>
#include <utility>

#include "common/log.h"

namespace ringmaster::coordinator {
namespace {

StatusOr<std::vector<pki::Credentials>> NoCredentials() {
  return absl::UnavailableError("the key cannot be read");
}

// Somebody who connected from there.
OwnedFile Connect(JoinListener* listener, const std::string& address) {
  int pair[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  listener->Take(OwnedFile(pair[1]), address);
  return OwnedFile(pair[0]);
}

// Whether it is closed within so many milliseconds.
bool IsClosed(const OwnedFile& file, int within) {
  pollfd wait = {file.get(), POLLIN, 0};
  char byte = 0;
  return poll(&wait, 1, within) == 1 && recv(file.get(), &byte, 1, 0) == 0;
}

TEST_CASE("JoinListener: two of an address wait, and sixteen in all") {
  JoinListener listener(&NoCredentials, nullptr);  // nobody is served before Start
  std::vector<OwnedFile> waiting;
  for (size_t i = 0; i < JoinListener::kMostWaiting; ++i) {
    waiting.push_back(Connect(&listener, i < 3 ? "fd00::/64" : std::to_string(i)));
    CHECK(IsClosed(waiting.back(), 0) == (i == 2));
  }
  CHECK_FALSE(IsClosed(Connect(&listener, "the last one"), 0));
  CHECK(IsClosed(Connect(&listener, "one more"), 0));
}

TEST_CASE("JoinListener: 200 joins that break off are few lines of the log") {
  std::ostringstream said;
  const auto before = spdlog::default_logger();
  const auto logger = MakeLogger("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said));
  spdlog::set_default_logger(logger);
  logger->set_level(spdlog::level::info);
  {
    JoinListener listener(&NoCredentials, nullptr);
    listener.Start();
    for (int i = 0; i < 200; ++i) {
      CHECK(IsClosed(Connect(&listener, std::to_string(i)), 20'000));
    }
  }
  spdlog::set_default_logger(before);
  const std::string text = said.str();
  const auto lines = std::count(text.begin(), text.end(), '\n');
  CHECK(lines >= 1);
  CHECK(lines < 20);
  CHECK(text.find("nobody joined: the key cannot be read") != std::string::npos);
}

}  // namespace
}  // namespace ringmaster::coordinator
