#include "worker/ring/grpc/link_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::ring {
namespace {

constexpr size_t kLargest = 10'000;  // of a payload: places are of three pages

// Both ends of the memory of one link: two views of it, as two processes have.
struct Ends {
  std::shared_ptr<LinkMemory> receiver, sender;

  Ends() {
    auto made = LinkMemory::Create(kLargest);
    auto door = MemoryDoor::Open();
    if (!made.ok() || !door.ok() || !MemoryDoor::Pass(**made, door->name()).ok()) return;
    auto passed = door->Receive();
    if (!passed.ok()) return;
    receiver = *made;
    sender = *passed;
  }
};

Payload Numbers(size_t bytes) {
  std::vector<uint8_t> numbers(bytes);
  for (size_t i = 0; i < bytes; ++i) numbers[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return Payload(numbers);
}

Payload In(const std::shared_ptr<uint8_t>& place, size_t bytes) {
  std::memset(place.get(), 5, bytes);
  return {{{place.get(), bytes}}, place};
}

}  // namespace

TEST_CASE("LinkMemory: what is written at a place is read at the other end, where it lies") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  std::shared_ptr<uint8_t> place = ends.sender->Lend(kLargest);
  REQUIRE(place != nullptr);
  uint8_t* const start = place.get();
  const uint32_t in_place = ends.sender->Put(In(place, 5'000));
  CHECK(in_place == 1);
  const Payload copied = Numbers(9'999);
  const uint32_t elsewhere = ends.sender->Put(copied);
  CHECK(elsewhere == 2);

  const auto received = ends.receiver->Take(in_place, 5'000);
  REQUIRE(received.ok());
  CHECK(received->Copy() == std::vector<uint8_t>(5'000, 5));
  start[17] = 6;  // no copy was made
  CHECK(received->Copy()[17] == 6);
  const auto second = ends.receiver->Take(elsewhere, copied.size());
  REQUIRE(second.ok());
  CHECK(second->Copy() == copied.Copy());
}

TEST_CASE("LinkMemory: pieces are put together") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  const Payload whole = Numbers(9'000);
  const auto bytes = whole.pieces().front();
  const Payload pieces({bytes.first(1), bytes.subspan(1, 4'998), bytes.subspan(4'999)},
                       whole.owner());
  const auto received = ends.receiver->Take(ends.sender->Put(pieces), 9'000);
  REQUIRE(received.ok());
  CHECK(received->Copy() == whole.Copy());
}

TEST_CASE("LinkMemory: a place is free behind its last holder, at either end") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  std::vector<Payload> taken;
  uint32_t places = 0;
  for (; places < 1'000; ++places) {
    std::shared_ptr<uint8_t> place = ends.sender->Lend(kLargest);
    if (place == nullptr) break;
    const uint32_t put = ends.sender->Put(In(place, 4'096));
    taken.push_back(*ends.receiver->Take(put, 4'096));
  }
  REQUIRE(places > 16);
  REQUIRE(places < 1'000);
  CHECK(ends.sender->Put(Numbers(8'000)) == 0);

  Payload copy = taken[3];
  taken[3] = Payload();
  CHECK(ends.sender->Lend(kLargest) == nullptr);  // the copy holds it
  copy = Payload();
  std::shared_ptr<uint8_t> again = ends.sender->Lend(kLargest);
  REQUIRE(again != nullptr);
  CHECK(ends.sender->Lend(kLargest) == nullptr);  // the sender does
  again.reset();                                  // nothing came of it
  CHECK(ends.sender->Lend(kLargest) != nullptr);
}

TEST_CASE("LinkMemory: what lies outside lasts as long as who reads it") {
  Payload payload;
  {
    Ends ends;
    REQUIRE(ends.sender != nullptr);
    payload = *ends.receiver->Take(ends.sender->Put(Numbers(7'000)), 7'000);
  }
  CHECK(payload.Copy() == Numbers(7'000).Copy());
}

TEST_CASE("LinkMemory: small and too large payloads have no place") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  CHECK(ends.sender->Put(Payload()) == 0);
  CHECK(ends.sender->Put(Numbers(LinkMemory::kLeastPayload - 1)) == 0);
  CHECK(ends.sender->Put(Numbers(LinkMemory::kLeastPayload)) != 0);
  CHECK(ends.sender->Put(Numbers(12'288)) != 0);  // whole pages
  CHECK(ends.sender->Put(Numbers(12'289)) == 0);
  CHECK(ends.sender->Lend(12'289) == nullptr);
}

TEST_CASE("LinkMemory: a frame that names what is not there is refused") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  for (const uint32_t place : {0U, 1'000U, ~0U}) {
    const Status status = ends.receiver->Take(place, 100).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(status).find("frame place") != std::string::npos);
  }
  CHECK(ends.receiver->Take(1, 12'289).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("MemoryDoor: nothing, a stranger's socket and a door that is shut") {
  const auto memory = LinkMemory::Create(kLargest);
  REQUIRE(memory.ok());
  std::string shut;
  {
    const auto door = MemoryDoor::Open();
    REQUIRE(door.ok());
    shut = door->name();
    CHECK(door->Receive().status().code() == absl::StatusCode::kNotFound);
    const auto other = MemoryDoor::Open();
    REQUIRE(other.ok());
    CHECK(other->name() != shut);
  }
  for (const std::string& name :
       {shut, std::string(), std::string("/run/systemd/notify"), shut + "0",
        std::string("ringmaster-link-") + std::string(32, 'g')}) {
    INFO(name);
    CHECK(MemoryDoor::Pass(**memory, name).code() == absl::StatusCode::kNotFound);
  }
}

TEST_CASE("MemoryDoor: what another user passes is not taken") {
  if (geteuid() != 0) return;  // nobody else can be one here
  const auto door = MemoryDoor::Open();
  const auto memory = LinkMemory::Create(kLargest);
  REQUIRE((door.ok() && memory.ok()));
  const pid_t child = fork();
  if (child == 0) {
    const bool passed = setuid(65'534) == 0 && MemoryDoor::Pass(**memory, door->name()).ok();
    _exit(passed ? 0 : 1);
  }
  int outcome = 0;
  REQUIRE(waitpid(child, &outcome, 0) == child);
  REQUIRE(outcome == 0);
  CHECK(door->Receive().status().code() == absl::StatusCode::kNotFound);
  // And does not keep what this user does from being found.
  REQUIRE(MemoryDoor::Pass(**memory, door->name()).ok());
  CHECK(door->Receive().ok());
}

}  // namespace ringmaster::ring
