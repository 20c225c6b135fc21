#include "coordinator/store/checkpoint_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "coordinator/store/checkpoint_reader.h"
#include "tests/support/fake_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

namespace fs = std::filesystem;
using testing::FakeCheckpoint;

const JobId kJob("j0001");
constexpr uint64_t kMaxBytes = 16 << 20;

// Stages and finishes; the status of the first call that fails.
Status Bring(const CheckpointFolder& folder, const FakeCheckpoint& checkpoint, std::string* path) {
  RING_ASSIGN_OR_RETURN(auto staged, folder.Stage(kJob, checkpoint.step, kMaxBytes));
  for (const v1::FilePiece& piece : testing::PiecesOf(checkpoint)) {
    RING_RETURN_IF_ERROR(staged->Write(piece));
  }
  RING_RETURN_IF_ERROR(staged->Finish());
  RING_ASSIGN_OR_RETURN(*path, folder.Commit(*staged));
  return absl::OkStatus();
}

size_t CountEntries(const std::string& path) {
  return static_cast<size_t>(
      std::distance(fs::recursive_directory_iterator(path), fs::recursive_directory_iterator()));
}

struct CheckpointDisk {
  TemporaryFolder root;
  CheckpointFolder folder{root.path()};
  FakeCheckpoint checkpoint = testing::MakeCheckpoint(10, "aa", "bb");
  std::string path;
};

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: what was committed is read back byte for byte") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  CHECK(path == root.path() + "/j0001/step-00000010");
  auto reader = CheckpointReader::Open(path, checkpoint.manifest_sha256());
  REQUIRE(reader.ok());
  std::map<std::string, std::string> files;
  std::string last;
  while (true) {
    const auto piece = (*reader)->Next();
    REQUIRE(piece.ok());
    if (!*piece) break;
    CHECK((*piece)->offset() == files[(*piece)->name()].size());
    CHECK((*piece)->data().size() <= 1 << 20);
    files[(*piece)->name()] += (*piece)->data();
    last = (*piece)->name();
  }
  CHECK(last == "manifest.json");
  const std::map<std::string, std::string> sent(checkpoint.files.begin(), checkpoint.files.end());
  CHECK(files == sent);
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: the same bytes may come twice; others make room and are kept") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  CHECK(Bring(folder, checkpoint, &path).ok());
  const FakeCheckpoint other = testing::MakeCheckpoint(10, "aa", "cc");
  const std::string before = path;
  REQUIRE(Message(Bring(folder, other, &path)) == "");
  CHECK(path == before);
  size_t places = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    CHECK(entry.path().string().starts_with(path));
    CHECK(std::filesystem::exists(entry.path() / "manifest.json"));
    ++places;
  }
  CHECK(places == 2);
}

TEST_CASE_METHOD(CheckpointDisk, "CheckpointFolder: a quota counts what is there and what comes") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  uint64_t there = 0;
  for (const auto& [name, bytes] : checkpoint.files) there += bytes.size();
  const CheckpointFolder tight(root.path(), there + 2 * kMaxBytes);
  auto first = tight.Stage(kJob, 11, kMaxBytes);
  REQUIRE(first.ok());
  const auto second = tight.Stage(kJob, 12, kMaxBytes);
  REQUIRE(second.ok());
  const auto third = tight.Stage(kJob, 13, 1);
  CHECK(third.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Message(third.status()),
             Catch::Contains("--checkpoint-quota") && Catch::Contains("checkpoint.keep"));
  // One that went makes room, with the bytes that it may have had; so does one that is removed.
  first = absl::CancelledError("it was given up");
  CHECK(tight.Stage(kJob, 13, kMaxBytes).ok());
  CHECK_FALSE(tight.Stage(kJob, 13, kMaxBytes + 1).ok());
  REQUIRE(tight.Remove(path).ok());
  CHECK(tight.Stage(kJob, 13, kMaxBytes + 1).ok());
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: every wrong upload is refused and leaves nothing") {
  std::string expected;
  SECTION("a byte is wrong") {
    checkpoint.files[1].second[2'000'000] = 'x';
    expected = "file state.safetensors has 3000000 bytes with SHA-256";
  }
  SECTION("a file is short") {
    checkpoint.files[0].second.pop_back();
    expected = "file model.safetensors has";
  }
  SECTION("a file is missing") {
    checkpoint.files.erase(checkpoint.files.begin());
    expected = "did not come";
  }
  SECTION("a file is not listed") {
    checkpoint.files.insert(checkpoint.files.begin(), {"more.txt", "more"});
    expected = "does not stand in";
  }
  SECTION("the manifest is missing") {
    checkpoint.files.pop_back();
    expected = "without manifest.json";
  }
  SECTION("the manifest is not the last") {
    checkpoint.files.emplace_back("more.txt", "more");
    expected = "must be the last";
  }
  SECTION("the manifest is no JSON") {
    checkpoint.files.back().second = "{";
    expected = "cannot be read";
  }
  SECTION("a digest in the manifest is none") {
    checkpoint = testing::MakeCheckpoint(10, "aa", "xy");
    expected = "has the digest \"xy\", expected lower-case hex";
  }
  SECTION("the manifest is of another step") {
    checkpoint.step = 11;
    expected = "is of step 10, the upload of step 11";
  }
  SECTION("a name leaves the folder") {
    checkpoint.files[0].first = "../model.safetensors";
    expected = "may not be called";
  }
  SECTION("a name is hidden") {
    checkpoint.files[0].first = ".model";
    expected = "may not be called";
  }
  SECTION("a file comes twice") {
    checkpoint.files.insert(checkpoint.files.begin(), checkpoint.files.front());
    expected = "comes twice";
  }
  const Status status = Bring(folder, checkpoint, &path);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(status), Catch::Contains(expected));
  CHECK(CountEntries(root.path()) <= 1);  // the empty staging folder
}

TEST_CASE_METHOD(CheckpointDisk, "CheckpointFolder: pieces out of order are refused") {
  auto staged = folder.Stage(kJob, 10, kMaxBytes);
  v1::FilePiece piece;
  piece.set_name("model.safetensors");
  piece.set_offset(5);
  CHECK((*staged)->Write(piece).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: more bytes than the job's state can have are refused") {
  uint64_t bytes = 0;
  for (const auto& [name, content] : checkpoint.files) bytes += content.size();
  for (const uint64_t limit : {bytes, bytes - 1}) {
    auto staged = folder.Stage(kJob, checkpoint.step, limit);
    REQUIRE(staged.ok());
    Status status;
    for (const v1::FilePiece& piece : testing::PiecesOf(checkpoint)) {
      if (status.ok()) status = (*staged)->Write(piece);
    }
    if (limit == bytes) {
      CHECK(status.ok());
      continue;
    }
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(Message(status), Catch::Contains(fmt::format("at most {} bytes", limit)));
  }
  CHECK(CountEntries(root.path()) <= 1);  // nothing is left of either
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: a sweep removes what is staged and nothing else") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  fs::create_directories(root.path() + "/.staging/left");
  const auto swept = folder.Sweep({{"j0001"}, {path}});
  REQUIRE(swept.ok());
  CHECK(swept->strays.empty());
  CHECK(swept->unknown_jobs.empty());
  CHECK(swept->warnings.empty());
  CHECK(fs::exists(path));
  CHECK_FALSE(fs::exists(root.path() + "/.staging"));
}

TEST_CASE_METHOD(CheckpointDisk, "CheckpointFolder: of a job that is removed nothing is left") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  SECTION("at once") { CHECK(folder.RemoveJob("j0001").ok()); }
  SECTION("by the next start, when that did not happen") {
    const auto swept = folder.Sweep({{}, {}, {"j0001", "j0002"}});
    REQUIRE(swept.ok());
    CHECK(swept->strays.empty());
    CHECK(swept->unknown_jobs.empty());
    CHECK(swept->warnings.empty());
  }
  CHECK_FALSE(fs::exists(root.path() + "/j0001"));
  CHECK(fs::is_empty(root.path() + "/.staging"));
  CHECK(folder.RemoveJob("j0001").ok());
}

TEST_CASE_METHOD(CheckpointDisk, "CheckpointFolder: a sweep finds whole ones that the store lost") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  const FakeCheckpoint newer = testing::MakeCheckpoint(11, "aa", "bb");
  std::string stray;
  REQUIRE(Bring(folder, newer, &stray).ok());
  const auto swept = folder.Sweep({{"j0001"}, {path}});
  REQUIRE(swept.ok());
  REQUIRE(swept->strays.size() == 1);
  CHECK(swept->strays[0].job_id == "j0001");
  CHECK(swept->strays[0].ref.path() == stray);
  CHECK(swept->strays[0].ref.step() == 11);
  CHECK(swept->strays[0].ref.sha256() == newer.manifest_sha256());
  CHECK(swept->strays[0].result_digest == "aa");
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: a sweep leaves what it cannot use, and says so") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  std::string expected;
  CheckpointFolder::Known known{{"j0001"}, {}};
  SECTION("a damaged one") {
    std::fstream(path + "/model.safetensors", std::ios::in | std::ios::out) << "W";
    expected = "it is not a whole checkpoint: " + path + "/model.safetensors has SHA-256";
  }
  SECTION("one without manifest") {
    fs::remove(path + "/manifest.json");
    expected = "it is not a whole checkpoint";
  }
  SECTION("one in the place of another") {
    fs::rename(path, root.path() + "/j0001/step-00000012");
    path = root.path() + "/j0001/step-00000012";
    expected = "its manifest is of step 10";
  }
  SECTION("one of an unknown job") {
    known.jobs.clear();
    expected = "belongs to no job that the store knows";
  }
  const auto swept = folder.Sweep(known);
  REQUIRE(swept.ok());
  CHECK(swept->strays.empty());
  CHECK(swept->unknown_jobs.size() == (known.jobs.empty() ? 1 : 0));
  REQUIRE(swept->warnings.size() == 1);
  CHECK_THAT(swept->warnings[0], Catch::Contains(expected));
  CHECK(fs::exists(path));
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: a damaged one is replaced by the one that comes") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  std::fstream(path + "/model.safetensors", std::ios::in | std::ios::out) << "W";
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  const auto swept = folder.Sweep({{"j0001"}, {}});
  REQUIRE(swept.ok());
  CHECK(swept->strays.size() == 1);  // whole again
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointFolder: a removed one is gone, and once more is no error") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  REQUIRE(folder.Remove(path).ok());
  CHECK_FALSE(fs::exists(path));
  CHECK(fs::is_empty(root.path() + "/.staging"));
  CHECK(folder.Remove(path).ok());
}

TEST_CASE_METHOD(CheckpointDisk, "CheckpointReader: a damaged file is told before its last piece") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  std::fstream(path + "/model.safetensors", std::ios::in | std::ios::out) << "W";
  auto reader = CheckpointReader::Open(path, checkpoint.manifest_sha256());
  REQUIRE(reader.ok());
  Status status;
  while (status.ok()) {
    const auto piece = (*reader)->Next();
    status = piece.status();
    if (piece.ok()) REQUIRE(piece->has_value());
  }
  CHECK(status.code() == absl::StatusCode::kDataLoss);
}

TEST_CASE_METHOD(CheckpointDisk,
                 "CheckpointReader: a removed checkpoint and another manifest are refused") {
  REQUIRE(Bring(folder, checkpoint, &path).ok());
  CHECK(CheckpointReader::Open(path, std::string(64, '0')).status().code() ==
        absl::StatusCode::kDataLoss);
  REQUIRE(folder.Remove(path).ok());
  CHECK(CheckpointReader::Open(path, checkpoint.manifest_sha256()).status().code() ==
        absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace ringmaster::coordinator
