#include "worker/ring/grpc/link_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/sha256.h"
#include "common/status.h"
#include "worker/process/passed_files.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {
namespace {

constexpr size_t kLargest = 10'000;  // of a payload: places are of three pages

// Both ends of the memory of one link: two views of it, as two processes have.
struct Ends {
  std::shared_ptr<LinkMemory> receiver, sender;

  Ends() {
    auto made = LinkMemory::Create(kLargest);
    auto door = MemoryDoor::Open();
    if (!made.ok() || !door.ok() || !MemoryDoor::Pass(**made, door->address()).ok()) return;
    auto passed = door->Receive(kLargest);
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

using Pushed = LinkMemory::Pushed;

FrameHeader HeaderOf(const Payload& payload, uint32_t segment = 0, uint32_t after = 0) {
  return Sealed({.job = 7, .generation = {1, 2}, .segment = segment, .after = after}, payload);
}

Pushed Push(const Ends& ends, const Payload& payload, uint32_t segment = 0, uint32_t after = 0) {
  return ends.sender->Push(HeaderOf(payload, segment, after), payload, nullptr);
}

// What `from` received goes on over `to`.
Payload SendOn(const Payload& payload, const Ends& from, const Ends& to) {
  REQUIRE(to.sender->Push(HeaderOf(payload), payload, from.receiver) == Pushed::kYes);
  const auto frame = to.receiver->Pop();
  REQUIRE(frame.ok());
  return frame->payload;
}

// So that `to` knows the memory of `from`: the first frame that goes on is copied.
void Introduce(const Ends& from, const Ends& to) {
  std::shared_ptr<uint8_t> place = from.sender->Lend(kLargest);
  REQUIRE(place != nullptr);
  REQUIRE(Push(from, In(place, 100)) == Pushed::kYes);
  const Payload copy = SendOn(from.receiver->Pop()->payload, from, to);
  place.get()[17] = 6;
  CHECK(copy.Copy()[17] == 5);
}

// As many places as one link's sender can have now.
size_t FreePlaces(const Ends& ends) {
  std::vector<std::shared_ptr<uint8_t>> places;
  while (places.size() < 1'000) {
    places.push_back(ends.sender->Lend(kLargest));
    if (places.back() == nullptr) return places.size() - 1;
  }
  return places.size();
}

}  // namespace

TEST_CASE("LinkMemory: a frame that is put in at one end comes out at the other") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  CHECK_FALSE(ends.receiver->HasNext(0));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4'097}, kLargest}) {
    const Payload payload = size > 0 ? Numbers(size) : Payload();
    CHECK(Push(ends, payload, static_cast<uint32_t>(size)) == Pushed::kYes);
    REQUIRE(ends.receiver->HasNext(0));
    const auto frame = ends.receiver->Pop();
    REQUIRE(frame.ok());
    CHECK(frame->header == HeaderOf(payload, static_cast<uint32_t>(size)));
    CHECK(frame->payload.Copy() == payload.Copy());
  }
  CHECK(ends.sender->pushed() == 4);
  CHECK(ends.sender->popped() == 4);
  CHECK(ends.sender->empty());
}

TEST_CASE("LinkMemory: what was written at its place is read where it lies") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  std::shared_ptr<uint8_t> place = ends.sender->Lend(kLargest);
  REQUIRE(place != nullptr);
  uint8_t* const start = place.get();
  REQUIRE(Push(ends, In(place, 5'000)) == Pushed::kYes);
  const auto frame = ends.receiver->Pop();
  REQUIRE(frame.ok());
  CHECK(frame->payload.Copy() == std::vector<uint8_t>(5'000, 5));
  start[17] = 6;
  CHECK(frame->payload.Copy()[17] == 6);
}

TEST_CASE("LinkMemory: pieces are put together") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  const Payload whole = Numbers(9'000);
  const auto bytes = whole.pieces().front();
  const Payload pieces({bytes.first(1), bytes.subspan(1, 4'998), bytes.subspan(4'999)},
                       whole.owner());
  REQUIRE(Push(ends, pieces) == Pushed::kYes);
  const auto frame = ends.receiver->Pop();
  REQUIRE(frame.ok());
  CHECK(frame->payload.Copy() == whole.Copy());
}

TEST_CASE("LinkMemory: frames come in order, also round the end of the queue, until it is full") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  uint32_t sent = 0, received = 0;
  // There is a place for every other one.
  const auto payload = [](uint32_t number) {
    return number % 2 == 0 ? Numbers(100 + number) : Payload();
  };
  const auto receive = [&] {
    const auto frame = ends.receiver->Pop();
    REQUIRE(frame.ok());
    CHECK(frame->header.segment == received);
    CHECK(frame->payload.Copy() == payload(received).Copy());
    ++received;
  };
  for (int round = 0; round < 5; ++round) {
    while (Push(ends, payload(sent), sent) != Pushed::kNo) ++sent;
    CHECK(sent - received == kWindowFrames);
    for (int i = 0; i < 18; ++i) receive();
  }
  while (received < sent) receive();
  CHECK(ends.receiver->empty());
}

TEST_CASE("LinkMemory: a frame waits for those of the stream that were sent before it") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  REQUIRE(Push(ends, Numbers(10), 0, 3) == Pushed::kYes);
  CHECK_FALSE(ends.receiver->HasNext(2));
  CHECK(ends.receiver->HasNext(3));
  CHECK(ends.receiver->HasNext(4));
  CHECK_FALSE(ends.receiver->empty());
  CHECK(ends.receiver->Pop()->header.after == 0);  // nobody else's business
  // Counts wrap around.
  REQUIRE(Push(ends, Numbers(10), 0, ~0U) == Pushed::kYes);
  CHECK_FALSE(ends.receiver->HasNext(~0U - 1));
  CHECK(ends.receiver->HasNext(1));
}

TEST_CASE("LinkMemory: one who sleeps is woken by the first frame alone") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  ends.receiver->SetSleeps(true);
  CHECK(Push(ends, Numbers(10)) == Pushed::kSleeps);
  CHECK(Push(ends, Numbers(10)) == Pushed::kYes);
  ends.receiver->SetSleeps(true);
  ends.receiver->SetSleeps(false);
  CHECK(Push(ends, Numbers(10)) == Pushed::kYes);
}

TEST_CASE("LinkMemory: a place is free behind its last holder, at either end") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  std::vector<Payload> taken;
  uint32_t places = 0;
  for (; places < 1'000; ++places) {
    std::shared_ptr<uint8_t> place = ends.sender->Lend(kLargest);
    if (place == nullptr) break;
    REQUIRE(Push(ends, In(place, 4'096)) == Pushed::kYes);
    taken.push_back(ends.receiver->Pop()->payload);
  }
  REQUIRE(places == kWindowFrames / 2);
  CHECK(Push(ends, Numbers(8'000)) == Pushed::kNo);
  CHECK(Push(ends, Payload()) == Pushed::kYes);  // needs none
  REQUIRE(ends.receiver->Pop().ok());

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

TEST_CASE("LinkMemory: a payload lasts as long as who reads it") {
  Payload payload;
  {
    Ends ends;
    REQUIRE(ends.sender != nullptr);
    REQUIRE(Push(ends, Numbers(7'000)) == Pushed::kYes);
    payload = ends.receiver->Pop()->payload;
  }
  CHECK(payload.Copy() == Numbers(7'000).Copy());
}

TEST_CASE(
    "LinkMemory: what goes on from link to link stays at its place until the last one's end") {
  const Ends first, second, third;
  REQUIRE((first.sender != nullptr && second.sender != nullptr && third.sender != nullptr));
  Introduce(first, second);
  const size_t places = FreePlaces(first);
  for (int round = 0; round < 3; ++round) {
    std::shared_ptr<uint8_t> place = first.sender->Lend(kLargest);
    uint8_t* const start = place.get();
    REQUIRE(Push(first, In(place, 5'000)) == Pushed::kYes);
    place.reset();
    Payload far = first.receiver->Pop()->payload;
    far = SendOn(SendOn(far, first, second), second, third);
    CHECK(far.Copy() == std::vector<uint8_t>(5'000, 5));
    start[17] = 6;
    // The third link knows the first one's memory behind the first frame that came from there.
    CHECK(far.Copy()[17] == (round == 0 ? 5 : 6));
    CHECK(FreePlaces(first) == places - (round == 0 ? 0 : 1));
    CHECK(FreePlaces(second) == places);
    far = Payload();
    CHECK(FreePlaces(first) == places);
  }
}

TEST_CASE("LinkMemory: what comes from more memories than a link passes is copied") {
  const Ends last;
  std::vector<Payload> far;
  for (uint8_t i = 0; i < 20; ++i) {
    const Ends ends;
    Introduce(ends, last);
    std::shared_ptr<uint8_t> place = ends.sender->Lend(kLargest);
    REQUIRE(place != nullptr);
    REQUIRE(Push(ends, In(place, 100)) == Pushed::kYes);
    far.push_back(SendOn(ends.receiver->Pop()->payload, ends, last));
    place.get()[i] = 77;  // behind the copy, where there was one
    CHECK(far.back().Copy()[i] == (i < 14 ? 77 : 5));
  }
}

TEST_CASE("LinkMemory: a payload that is too large finds no place") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  CHECK(Push(ends, Numbers(kLargest)) == Pushed::kYes);
  CHECK(Push(ends, Numbers(kLargest + 1)) == Pushed::kNo);  // the page has room for it
  CHECK(ends.sender->Lend(kLargest + 1) == nullptr);
  CHECK(ends.sender->pushed() == 1);
}

TEST_CASE("LinkMemory: what is no frame, or is no longer what its header says, is refused") {
  const auto refused = [](const FrameHeader& header, const Payload& payload, size_t flip) {
    Ends ends;
    REQUIRE(ends.sender != nullptr);
    std::shared_ptr<uint8_t> place = ends.sender->Lend(kLargest);
    std::ranges::copy(payload.Copy(), place.get());
    uint8_t* const start = place.get();
    const Payload there({{start, payload.size()}}, place);
    REQUIRE(ends.sender->Push(header, there, nullptr) == Pushed::kYes);
    if (flip < payload.size()) start[flip] ^= 4;
    REQUIRE(ends.receiver->HasNext(0));
    const Status status = ends.receiver->Pop().status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(Message(status));
  };
  const Payload payload = Numbers(6'000);
  FrameHeader header = HeaderOf(payload);
  CHECK(refused(header, payload, 4'711).find("payload checksum") != std::string::npos);
  header.payload_bytes = 5'999;
  CHECK(refused(header, payload, 6'000).find("payload checksum") != std::string::npos);
  header.payload_bytes = kLargest + 1;
  CHECK(refused(header, payload, 6'000).find("frame place") != std::string::npos);
  header = HeaderOf(payload);
  header.phase = static_cast<Phase>(9);
  CHECK(refused(header, payload, 6'000).find("frame phase") != std::string::npos);
}

TEST_CASE("LinkMemory: a place of a memory that was not passed is refused") {
  Ends ends;
  REQUIRE(ends.sender != nullptr);
  const std::shared_ptr<uint8_t> place = ends.sender->Lend(kLargest);
  const Payload payload = Numbers(100);
  REQUIRE(Push(ends, payload) == Pushed::kYes);
  // The queue lies in the pages before the places: of each frame the header, then which memory.
  std::array<uint8_t, kHeaderBytes> header;
  Encode(HeaderOf(payload), header.data());
  uint8_t* const found =
      std::search(place.get() - 12'288, place.get(), header.begin(), header.end());
  REQUIRE(found != place.get());
  const uint32_t unknown = GENERATE(1U, 2U, 15U, ~0U);
  std::memcpy(found + kHeaderBytes, &unknown, sizeof(unknown));
  const Status status = ends.receiver->Pop().status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(Message(status)).find("frame place: of memory") != std::string::npos);
}

TEST_CASE("MemoryDoor: nothing came, and nobody is there") {
  const auto memory = LinkMemory::Create(kLargest);
  REQUIRE(memory.ok());
  std::string shut;
  {
    const auto door = MemoryDoor::Open(), other = MemoryDoor::Open();
    REQUIRE((door.ok() && other.ok()));
    shut = door->address();
    CHECK(other->address() != shut);
    CHECK(door->Receive(kLargest).status().code() == absl::StatusCode::kNotFound);
  }
  for (const std::string& address : {shut, std::string(), shut + "0", shut.substr(1)}) {
    CHECK(MemoryDoor::Pass(**memory, address).code() == absl::StatusCode::kNotFound);
  }
}

TEST_CASE("MemoryDoor: what is not for payloads of that size is refused") {
  const auto door = MemoryDoor::Open();
  const auto memory = LinkMemory::Create(kLargest);
  REQUIRE((door.ok() && memory.ok()));
  REQUIRE(MemoryDoor::Pass(**memory, door->address()).ok());
  CHECK(door->Receive(kLargest * 2).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("MemoryDoor: what another user passes is not taken") {
  if (geteuid() != 0) return;  // nobody else can be one here
  const auto door = MemoryDoor::Open();
  const auto memory = LinkMemory::Create(kLargest);
  REQUIRE((door.ok() && memory.ok()));
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65'534) != 0) _exit(2);
    _exit(MemoryDoor::Pass(**memory, door->address()).ok() ? 0 : 1);
  }
  int outcome = 0;
  REQUIRE(waitpid(child, &outcome, 0) == child);
  if (WIFEXITED(outcome) && WEXITSTATUS(outcome) == 2) return;  // nor in this sandbox
  REQUIRE(outcome == 0);
  CHECK(door->Receive(kLargest).status().code() == absl::StatusCode::kNotFound);
  // And does not keep what this user does from being found.
  REQUIRE(MemoryDoor::Pass(**memory, door->address()).ok());
  CHECK(door->Receive(kLargest).ok());
}

// A file of a stranger's that closes late (a socket with SO_LINGER) would else keep its receiver
// waiting, and many would keep others out: neither comes in.
TEST_CASE("MemoryDoor: what comes without its secret takes no room, nor do its files come in") {
  const auto door = MemoryDoor::Open();
  const auto memory = LinkMemory::Create(kLargest);
  REQUIRE((door.ok() && memory.ok()));
  std::array<int, 2> ends;
  REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const OwnedFile from(ends[0]);
  OwnedFile to(ends[1]);
  const std::string name = "ringmaster-link-" + Hex(door->address().substr(0, kTicketBytes));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const OwnedFile socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  std::string wrong = door->address().substr(kTicketBytes);
  wrong.back() ^= 1;
  for (const std::string& secret : {wrong, std::string(), std::string("x"), wrong + "more",
                                    door->address().substr(kTicketBytes) + "more"}) {
    for (int i = 0; i < 100; ++i) {
      std::string sent = secret;
      iovec part = {sent.data(), sent.size()};
      msghdr message = {};
      message.msg_name = &address;
      message.msg_namelen =
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      PassedFiles passed;
      const std::array files = {to.get()};
      passed.SendWith(&message, files);
      REQUIRE(sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sent.size()));
    }
  }
  to = OwnedFile();
  char byte;
  CHECK(read(from.get(), &byte, 1) == 0);  // nobody has the other end of the pipe any more
  CHECK(door->Receive(kLargest).status().code() == absl::StatusCode::kNotFound);
  REQUIRE(MemoryDoor::Pass(**memory, door->address()).ok());
  CHECK(door->Receive(kLargest).ok());
}

TEST_CASE("LinkMemory: a receiver without room for one more file has frames of others copied") {
  const Ends first, second;
  REQUIRE((first.sender != nullptr && second.sender != nullptr));
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  std::shared_ptr<uint8_t> place = first.sender->Lend(kLargest);
  uint8_t* const start = place.get();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(Push(first, In(place, 100)) == Pushed::kYes);
    const Payload payload = first.receiver->Pop()->payload;
    REQUIRE(second.sender->Push(HeaderOf(payload), payload, first.receiver) == Pushed::kYes);
    rlimit none = before;
    none.rlim_cur = 3;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const auto frame = second.receiver->Pop();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(frame.ok());
    start[17] = 6;
    CHECK(frame->payload.Copy()[17] == 5);
  }
}

}  // namespace ringmaster::ring
