#include "worker/transfer/checkpoint_fetch.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tests/worker/transfer/checkpoint_cases.h"

namespace ringmaster::worker {
namespace {

using Pieces = std::vector<v1::FilePiece>;

StatusOr<Checkpoint> Receive(const Pieces& pieces, const v1::CheckpointSource& source,
                             uint64_t max_bytes = 1 << 30) {
  CheckpointReceiver receiver(max_bytes);
  for (const v1::FilePiece& piece : pieces) RING_RETURN_IF_ERROR(receiver.Take(piece));
  return receiver.Finish(source);
}

struct Bad {
  std::string name;
  std::function<void(Pieces*)> spoil;
  std::string words;
};

// Of model (three pieces), optimizer, state, manifest.
const std::vector<Bad>& BadCheckpoints() {
  static const std::vector<Bad> all = {
      {"a flipped byte", [](Pieces* p) { (*(*p)[1].mutable_data())[9] ^= 1; },
       "model.safetensors is not what the manifest says"},
      {"a byte too many", [](Pieces* p) { (*p)[4].mutable_data()->push_back('!'); },
       "state.safetensors is not what the manifest says"},
      {"a flipped byte of the manifest", [](Pieces* p) { (*(*p)[5].mutable_data())[9] ^= 1; },
       "manifest.json has SHA-256"},
      {"half a manifest",
       [](Pieces* p) { (*p)[5].mutable_data()->resize((*p)[5].data().size() / 2); },
       "manifest.json has SHA-256"},
      {"an unfinished manifest", [](Pieces* p) { (*p)[5].set_last(false); },
       "manifest.json ended early"},
      {"no manifest", [](Pieces* p) { p->pop_back(); },
       "manifest.json is not the last of its 3 files"},
      {"nothing", [](Pieces* p) { p->clear(); }, "manifest.json is not the last of its 0 files"},
      {"the manifest not last", [](Pieces* p) { std::swap((*p)[4], (*p)[5]); },
       "manifest.json is not the last of its 4 files"},
      {"a file left out", [](Pieces* p) { p->erase(p->begin() + 3); },
       "the manifest names 3 files, there are 2"},
      {"a piece left out", [](Pieces* p) { p->erase(p->begin() + 1); },
       "model.safetensors at byte 2097152 arrived, expected model.safetensors at byte 1048576"},
      {"a piece twice", [](Pieces* p) { p->insert(p->begin(), (*p)[0]); },
       "model.safetensors at byte 0 arrived, expected model.safetensors at byte 1048576"},
      {"another file in between", [](Pieces* p) { std::swap((*p)[1], (*p)[3]); },
       "optimizer.safetensors at byte 0 arrived, expected model.safetensors at byte 1048576"},
      {"a file twice", [](Pieces* p) { p->insert(p->begin() + 3, (*p)[3]); },
       "optimizer.safetensors arrived twice"},
      {"a path", [](Pieces* p) { (*p)[3].set_name("a/b"); }, "a file named `a/b`"},
      {"many files",
       [](Pieces* p) {
         for (int i = 0; i < 70; ++i) {
           v1::FilePiece piece;
           piece.set_name("n" + std::to_string(i));
           piece.set_last(true);
           p->insert(p->begin(), piece);
         }
       },
       "more than 64 files"},
  };
  return all;
}

}  // namespace

TEST_CASE("CheckpointReceiver: what arrives whole is the checkpoint") {
  const Checkpoint checkpoint = SomeCheckpoint();
  const StatusOr<Checkpoint> got = Receive(PiecesOf(checkpoint), SourceOf(checkpoint));
  REQUIRE(got.status() == absl::OkStatus());
  CHECK(Same(*got, checkpoint));
  // And takes no more memory than its bytes.
  const std::string& largest = got->files.front().bytes;
  CHECK(largest.capacity() == largest.size());
}

TEST_CASE("CheckpointReceiver: what is not whole is refused, and says where") {
  const Checkpoint checkpoint = SomeCheckpoint();
  const Pieces good = PiecesOf(checkpoint);
  REQUIRE(good.size() == 6);
  for (const Bad& bad : BadCheckpoints()) {
    Pieces pieces = good;
    bad.spoil(&pieces);
    const Status status = Receive(pieces, SourceOf(checkpoint)).status();
    INFO(bad.name << ": " << Message(status));
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(Message(status).find(bad.words) != std::string::npos);
  }
}

TEST_CASE("CheckpointReceiver: the checkpoint of another step, or a larger one than may be") {
  const Checkpoint checkpoint = SomeCheckpoint();
  v1::CheckpointSource source = SourceOf(checkpoint);
  source.set_step(41);
  Status status = Receive(PiecesOf(checkpoint), source).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(Message(status) == "manifest.json is of step 40, expected 41");
  status = Receive(PiecesOf(checkpoint), SourceOf(checkpoint), 2 << 20).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(Message(status) == "more than 2097152 bytes arrived, in model.safetensors");
}

}  // namespace ringmaster::worker
