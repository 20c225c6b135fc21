#include "worker/log/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace ringmaster::worker {
namespace {

namespace fs = std::filesystem;
constexpr size_t kAll = size_t{1} << 30;

std::unique_ptr<Spool> OpenIn(const TemporaryFolder& folder, uint64_t limit = kMinSpoolBytes) {
  auto spool = Spool::Open({folder.path(), limit});
  REQUIRE(spool.ok());
  return *std::move(spool);
}

void Append(Spool& spool, const std::string& text) {
  v1::SpooledLine line;
  line.set_job_id("j0001");
  line.set_level("info");
  line.set_unix_ms(1);
  line.set_text(text);
  spool.Append(std::move(line));
}

// All lines, as a coordinator would get them, without acknowledging any.
std::vector<uint64_t> Numbers(const Spool::Batch& batch) {
  std::vector<uint64_t> numbers;
  for (const v1::SpooledLine& line : batch.lines) numbers.push_back(line.number());
  return numbers;
}

std::vector<uint64_t> Drain(Spool& spool) {
  std::vector<uint64_t> numbers;
  while (!spool.drained()) {
    const Spool::Batch batch = spool.Unacknowledged(1000);
    REQUIRE_FALSE(batch.lines.empty());
    for (const uint64_t number : Numbers(batch)) numbers.push_back(number);
    spool.Acknowledge(batch.spool, numbers.back());
  }
  return numbers;
}

std::vector<std::string> Segments(const TemporaryFolder& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() == ".log") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST_CASE("Spool: lines come in order, until they are acknowledged") {
  const TemporaryFolder folder;
  const auto spool = OpenIn(folder);
  for (const char* text : {"a", "b", "c"}) Append(*spool, text);
  const Spool::Batch batch = spool->Unacknowledged(kAll);
  REQUIRE(batch.lines.size() == 3);
  CHECK(Numbers(batch) == std::vector<uint64_t>{1, 2, 3});
  CHECK(batch.lines[1].text() == "b");
  CHECK(batch.lines[1].job_id() == "j0001");
  spool->Acknowledge(batch.spool, 2);
  CHECK(Numbers(spool->Unacknowledged(kAll)) == std::vector<uint64_t>{3});
  spool->Acknowledge("of another spool", 3);
  CHECK_FALSE(spool->drained());
  spool->Acknowledge(batch.spool, 3);
  CHECK(spool->drained());
  CHECK(spool->Unacknowledged(kAll).lines.empty());
}

TEST_CASE("Spool: a batch is bounded and never empty") {
  const TemporaryFolder folder;
  const auto spool = OpenIn(folder);
  for (int i = 0; i < 10; ++i) Append(*spool, std::string(100, 'x'));
  CHECK(spool->Unacknowledged(1).lines.size() == 1);
  CHECK(spool->Unacknowledged(300).lines.size() == 3);
}

TEST_CASE("Spool: the next process has what this one wrote, without a goodbye") {
  const TemporaryFolder folder, other;
  std::string id;
  {
    const auto spool = OpenIn(folder);
    for (const char* text : {"a", "b", "c"}) Append(*spool, text);
    id = spool->Unacknowledged(1).spool;
    spool->Acknowledge(id, 1);
    // A copy of the files as they are now: what a kill -9 leaves.
    fs::copy(folder.path(), other.path());
  }
  auto copy = Spool::Open({other.path(), kMinSpoolBytes});
  REQUIRE(copy.ok());
  Append(**copy, "d");
  const Spool::Batch batch = (*copy)->Unacknowledged(kAll);
  CHECK(batch.spool == id);
  CHECK(Numbers(batch) == std::vector<uint64_t>{2, 3});
  CHECK(Drain(**copy) == std::vector<uint64_t>{2, 3, 4});
}

TEST_CASE("Spool: half a line at the end is dropped and its number used") {
  const TemporaryFolder folder;
  {
    const auto spool = OpenIn(folder);
    Append(*spool, "a");
    Append(*spool, "b");
  }
  REQUIRE(Segments(folder).size() == 1);
  fs::resize_file(Segments(folder)[0], fs::file_size(Segments(folder)[0]) - 1);
  const auto spool = OpenIn(folder);
  Append(*spool, "c");
  CHECK(Drain(*spool) == std::vector<uint64_t>{1, 2});

  const auto path = Segments(folder).back();
  WriteWhole(path, "2 1 inf");  // not one whole line: the name is needed again
  const auto again = OpenIn(folder);
  Append(*again, "d");
  CHECK(Drain(*again).size() == 1);
}

TEST_CASE("Spool: when it is full the oldest lines go, and the gap says how many") {
  const TemporaryFolder folder;
  const auto spool = OpenIn(folder);
  constexpr uint64_t kLines = 2000;
  for (uint64_t i = 1; i <= kLines; ++i) Append(*spool, std::string(100, 'x'));
  uint64_t bytes = 0;
  for (const std::string& path : Segments(folder)) bytes += fs::file_size(path);
  CHECK(bytes <= kMinSpoolBytes);
  CHECK(bytes > kMinSpoolBytes * 3 / 4);
  const std::vector<uint64_t> numbers = Drain(*spool);
  CHECK(numbers.front() > 1000);
  CHECK(numbers.back() == kLines);
  CHECK(numbers.size() == kLines - numbers.front() + 1);
}

TEST_CASE("Spool: segments go when they are acknowledged") {
  const TemporaryFolder folder;
  const auto spool = OpenIn(folder);
  for (int i = 0; i < 300; ++i) Append(*spool, std::string(100, 'x'));
  REQUIRE(Segments(folder).size() > 5);
  CHECK(Drain(*spool).size() == 300);
  CHECK(Segments(folder).size() == 1);
}

TEST_CASE("Spool: a drained spool begins anew at the next start and for the next job") {
  const TemporaryFolder folder;
  std::string first;
  {
    const auto spool = OpenIn(folder);
    Append(*spool, "a");
    first = spool->Unacknowledged(kAll).spool;
    spool->BeginAnewIfDrained();
    CHECK(spool->Unacknowledged(kAll).spool == first);
    Drain(*spool);
    spool->BeginAnewIfDrained();
    Append(*spool, "b");
    const Spool::Batch batch = spool->Unacknowledged(kAll);
    CHECK(batch.spool != first);
    CHECK(Numbers(batch) == std::vector<uint64_t>{1});
    first = batch.spool;
    Drain(*spool);
  }
  const auto spool = OpenIn(folder);
  Append(*spool, "c");
  CHECK(spool->Unacknowledged(kAll).spool != first);
}

TEST_CASE("Spool: foreign and damaged files do not stop it") {
  const TemporaryFolder folder;
  {
    const auto spool = OpenIn(folder);
    for (int i = 0; i < 100; ++i) Append(*spool, std::string(100, 'x'));
  }
  WriteWhole(folder / "notes.txt", "mine");
  WriteWhole(folder / "state", "nonsense");
  const std::vector<std::string> segments = Segments(folder);
  REQUIRE(segments.size() > 2);
  WriteWhole(segments[1], std::string(5000, '\0') + "\n");
  const auto spool = OpenIn(folder);
  Append(*spool, "last");
  const std::vector<uint64_t> numbers = Drain(*spool);
  CHECK(numbers.front() == 1);
  CHECK(numbers.back() == 101);
  CHECK(numbers.size() < 101);  // the damaged segment is a gap
  CHECK(ReadWhole(folder / "notes.txt") == "mine");
}

TEST_CASE("Spool: a line that cannot be written is lost by number, also after a restart") {
  const TemporaryFolder folder;
  const std::string hidden = folder.path() + ".hidden";
  {
    const auto spool = OpenIn(folder);
    Append(*spool, "a");
    Drain(*spool);
    spool->BeginAnewIfDrained();
    fs::rename(folder.path(), hidden);
    Append(*spool, "b");  // no folder, no segment
    CHECK(spool->drained());
    fs::rename(hidden, folder.path());
  }
  const auto spool = OpenIn(folder);
  Append(*spool, "c");
  CHECK(Drain(*spool) == std::vector<uint64_t>{2});
}

TEST_CASE("Spool: text is valid UTF-8 of at most 8 KiB") {
  const TemporaryFolder folder;
  const auto spool = OpenIn(folder, uint64_t{16} << 20);
  Append(*spool, std::string(10'000, 'x'));
  Append(*spool, "a\xff");
  const Spool::Batch batch = spool->Unacknowledged(kAll);
  REQUIRE(batch.lines.size() == 2);
  CHECK_THAT(batch.lines[0].text(), Catch::EndsWith("x [1808 bytes cut off]"));
  CHECK(batch.lines[1].text() == "a?");
}

TEST_CASE("Spool: a limit that holds no line is refused") {
  const TemporaryFolder folder;
  CHECK(Spool::Open({folder.path(), 100}).status().code() == absl::StatusCode::kInvalidArgument);
  WriteWhole(folder / "file", "");
  CHECK_FALSE(Spool::Open({folder / "file", kMinSpoolBytes}).ok());
}

}  // namespace
}  // namespace ringmaster::worker
