// A source of states in a process of its own, for tests that kill or stop it. Prints its port,
// sends the header and half of the bytes of S(7) to whoever asks, prints "half", and then sends
// nothing more until its stdin ends.
#include <cstdio>

#include "tests/worker/transfer/fake_states.h"
#include "tests/worker/transfer/state_cases.h"

int main() {
  using namespace ringmaster;
  const auto messages = worker::MessagesOf(worker::MakeState(7, 4 * worker::kMiB));
  const worker::FakeStates source(
      [&messages](const v1::FetchRequest&, worker::FakeStates::Writer* writer) {
        for (size_t i = 0; i < 3; ++i) writer->Write(messages[i]);
        std::puts("half");
        std::fflush(stdout);
        while (std::getchar() != EOF) {
        }
        return grpc::Status::OK;
      });
  std::printf("%s\n", source.address().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
