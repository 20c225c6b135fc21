#include "worker/transfer/state_pieces.h"

#include <catch2/catch.hpp>

#include "common/crc32c.h"
#include "tests/worker/transfer/state_cases.h"
#include "worker/transfer/state_receiver.h"

namespace ringmaster::worker {

TEST_CASE("StatePieces: header, pieces of at most 1 MiB in order with their CRC-32C, end") {
  const StateCopy copy = MakeState(7, {2 * kMiB + 5, 0, kMiB, 3});
  const std::vector<v1::StatePiece> pieces = PiecesOf(copy);
  REQUIRE(pieces.size() == 7);
  CHECK(pieces[0].header().step() == 7);
  REQUIRE(pieces[0].header().files_size() == 4);
  CHECK(pieces[0].header().files(0).bytes() == 2 * kMiB + 5);
  std::string all;
  for (size_t i = 1; i + 1 < pieces.size(); ++i) {
    const v1::StateBytes& bytes = pieces[i].bytes();
    CHECK(bytes.offset() == all.size());
    CHECK(bytes.data().size() <= kMiB);
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data().data());
    CHECK(bytes.crc32c() == ExtendCrc32c(0, {data, bytes.data().size()}));
    all += bytes.data();
  }
  std::string expected;
  for (const CheckpointFile& file : copy.files) expected += file.bytes;
  CHECK((all == expected));
  const Sha256Digest sha256 = Sha256Of(expected);
  CHECK(pieces.back().end().sha256() == std::string(sha256.begin(), sha256.end()));
}

TEST_CASE("StateReceiver: takes what StatePieces cut, whatever the sizes") {
  const std::vector<std::vector<size_t>> cases = {
      {}, {0}, {0, 0, 0}, {1}, {kMiB}, {kMiB + 1}, {0, 5, 0, 2 * kMiB, 0}, {kMiB - 1, 1, kMiB}};
  for (const std::vector<size_t>& sizes : cases) {
    StateCopy copy = MakeState(3, sizes);
    if (sizes.size() % 2 == 0) copy.validation = copy.test = std::nullopt;
    if (sizes.size() % 3 == 0) copy.test = std::nullopt;
    StateReceiver receiver(3, 8 * kMiB);
    for (const v1::StatePiece& piece : PiecesOf(copy)) {
      REQUIRE_FALSE(receiver.complete());
      REQUIRE(receiver.Take(piece) == absl::OkStatus());
    }
    REQUIRE(receiver.complete());
    CHECK(Same(std::move(receiver).Release(), copy));
  }
}

TEST_CASE("StateReceiver: a piece may go over the ends of files") {
  const StateCopy copy = MakeState(3, {2, 0, 3, 0, 4});
  std::vector<v1::StatePiece> pieces = PiecesOf(copy);
  REQUIRE(pieces.size() == 5);
  std::string all;
  for (const CheckpointFile& file : copy.files) all += file.bytes;
  pieces[1].mutable_bytes()->set_data(all);
  pieces[1].mutable_bytes()->set_crc32c(
      ExtendCrc32c(0, {reinterpret_cast<const uint8_t*>(all.data()), all.size()}));
  StateReceiver receiver(3, 9);
  CHECK(receiver.Take(pieces[0]) == absl::OkStatus());
  CHECK(receiver.Take(pieces[1]) == absl::OkStatus());
  CHECK(receiver.Take(pieces[4]) == absl::OkStatus());
  REQUIRE(receiver.complete());
  CHECK(Same(std::move(receiver).Release(), copy));
}

}  // namespace ringmaster::worker
