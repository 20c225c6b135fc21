#include "coordinator/store/log_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "common/log.h"
#include "coordinator/store/log_reader.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

namespace fs = std::filesystem;

const std::string kSpool(32, 'a');

bool IsKnown(const std::string& job) { return job.starts_with("j"); }

v1::SpooledLine LineOf(uint64_t number, const std::string& job = "j0001") {
  v1::SpooledLine line;
  line.set_number(number);
  line.set_job_id(job);
  line.set_unix_ms(static_cast<int64_t>(1000 * number));
  line.set_level("info");
  line.set_text("line " + std::to_string(number));
  return line;
}

// Lines with these numbers, of one job.
v1::LogChunk ChunkOf(const std::vector<uint64_t>& numbers, const std::string& worker = "a",
                     const std::string& job = "j0001") {
  v1::LogChunk chunk;
  chunk.set_worker(worker);
  chunk.set_spool(kSpool);
  for (const uint64_t number : numbers) *chunk.add_lines() = LineOf(number, job);
  return chunk;
}

struct LogDisk {
  LogDisk() { Restart(); }
  void Restart() {
    folder.reset();
    auto opened = LogFolder::Open(options);
    REQUIRE(opened.ok());
    folder = *std::move(opened);
  }
  uint64_t Store(const v1::LogChunk& chunk) {
    const auto stored = folder->Store(chunk, &IsKnown);
    REQUIRE(stored.ok());
    return stored->number;
  }
  // "a1 a2 +3 a6": worker and number in the spool of each line, and what was lost before it.
  std::string Read(const std::string& worker = "", const std::string& job = "j0001") {
    LogReader reader(*folder, job, worker);
    return ReadOn(reader);
  }
  static std::string ReadOn(LogReader& reader) {
    std::string text;
    std::map<std::string, uint64_t> newest_of;
    while (true) {
      const std::vector<v1::LogLine> lines = reader.Next(3);
      if (lines.empty()) return text;
      for (const v1::LogLine& line : lines) {
        if (!text.empty()) text += " ";
        if (line.lost() > 0) text += "+" + std::to_string(line.lost()) + " ";
        text += line.worker() + line.text().substr(std::string("line ").size());
        uint64_t& newest = newest_of[line.worker()];  // of the job's lines, not of the spool's
        CHECK((newest == 0 || line.number() == newest + line.lost() + 1));
        newest = line.number();
      }
    }
  }
  std::vector<std::string> Files(const std::string& job = "j0001") const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(temporary.path() + "/" + job)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder temporary;
  LogFolderOptions options{temporary.path()};
  std::unique_ptr<LogFolder> folder;
};

TEST_CASE("LogFolder: lines are stored once, in order, whatever comes twice") {
  LogDisk f;
  CHECK(f.Store(ChunkOf({1, 2, 3})) == 3);
  CHECK(f.Store(ChunkOf({2, 3, 4})) == 4);
  CHECK(f.Store(ChunkOf({1, 2})) == 4);
  CHECK(f.Read() == "a1 a2 a3 a4");
  CHECK(f.folder->Lost("j0001") == 0);
}

TEST_CASE("LogFolder: a gap is shown before the line behind it, and counted") {
  LogDisk f;
  f.Store(ChunkOf({4, 5}));
  f.Store(ChunkOf({5, 9}));
  CHECK(f.Read() == "+3 a4 a5 +3 a9");
  CHECK(f.folder->Lost("j0001") == 6);
  f.Restart();
  CHECK(f.Read() == "+3 a4 a5 +3 a9");
  CHECK(f.folder->Lost("j0001") == 6);
}

TEST_CASE("LogFolder: that a worker logs no more is known, and is no line") {
  LogDisk f;
  f.Store(ChunkOf({1, 2}));
  CHECK_FALSE(f.folder->Find("j0001")->at("a").ended());
  v1::LogChunk end = ChunkOf({5});
  end.mutable_lines(0)->set_level(kEndLevel);
  f.Store(end);
  for (int starts = 0; starts < 2; ++starts) {
    CHECK(f.folder->Find("j0001")->at("a").ended());
    CHECK(f.Read() == "a1 a2");
    CHECK(f.folder->Lost("j0001") == 2);
    f.Restart();
  }
  // It is back. What was lost before is shown now.
  LogReader reader(*f.folder, "j0001", "");
  CHECK(reader.Next(10).size() == 2);
  f.Store(ChunkOf({6}));
  CHECK_FALSE(f.folder->Find("j0001")->at("a").ended());
  const std::vector<v1::LogLine> behind = reader.Next(10);
  REQUIRE(behind.size() == 1);
  CHECK(behind[0].text() == "line 6");
  CHECK(behind[0].lost() == 2);
}

TEST_CASE("LogFolder: a restart knows what it has, also of lines that it dropped") {
  LogDisk f;
  f.Store(ChunkOf({1, 2}));
  CHECK(f.Store(ChunkOf({3, 4}, "a", "unknown")) == 4);
  f.Restart();
  CHECK(f.Store(ChunkOf({2, 3, 4, 5})) == 5);
  CHECK(f.Read() == "a1 a2 a5");
  CHECK(f.folder->Lost("j0001") == 0);
  CHECK(f.folder->Find("unknown") == nullptr);
}

TEST_CASE("LogFolder: one spool serves one job after the other") {
  LogDisk f;
  v1::LogChunk chunk = ChunkOf({1, 2});
  *chunk.add_lines() = LineOf(5, "j0002");
  *chunk.add_lines() = LineOf(6, "unknown");
  *chunk.add_lines() = LineOf(7, "j0002");
  const auto stored = f.folder->Store(chunk, &IsKnown);
  REQUIRE(stored.ok());
  CHECK(stored->jobs == std::set<std::string>{"j0001", "j0002"});
  CHECK(f.Read() == "a1 a2");
  CHECK(f.Read("", "j0002") == "+2 a5 a7");
  CHECK(f.folder->Lost("j0001") == 0);
  CHECK(f.folder->Lost("j0002") == 2);
}

TEST_CASE("LogFolder: what no worker ships is refused: jobs in turn, numbers far apart") {
  LogDisk f;
  v1::LogChunk turns = ChunkOf({});
  for (uint64_t number = 1; number <= 1000; ++number) {
    *turns.add_lines() = LineOf(number, number % 2 == 0 ? "j0001" : "j0002");
  }
  CHECK(f.Store(turns) == 1000);
  for (uint64_t number = 1001; number <= 2001; ++number) {
    *turns.add_lines() = LineOf(number, number % 2 == 0 ? "j0001" : "j0002");
  }
  CHECK(f.folder->Store(turns, &IsKnown).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(f.folder->Store(ChunkOf({UINT64_MAX}), &IsKnown).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.folder->Lost("j0001") == 0);
}

TEST_CASE("LogFolder: a spool that began anew counts from 1 again") {
  LogDisk f;
  f.Store(ChunkOf({1, 2, 3}));
  v1::LogChunk anew = ChunkOf({1, 2});
  anew.set_spool(std::string(32, 'b'));
  CHECK(f.Store(anew) == 2);
  CHECK(f.Read() == "a1 a2 a3 a1 a2");
  CHECK(f.folder->Lost("j0001") == 0);
}

TEST_CASE("LogReader: workers are merged by time, each in its own order") {
  LogDisk f;
  f.Store(ChunkOf({1, 2, 5}, "a"));
  v1::LogChunk b = ChunkOf({1, 2, 3}, "b");
  b.mutable_lines(0)->set_unix_ms(1500);
  b.mutable_lines(1)->set_unix_ms(6000);
  b.mutable_lines(2)->set_unix_ms(100);  // a clock that was set back
  f.Store(b);
  CHECK(f.Read() == "a1 b1 a2 +2 a5 b2 b3");
  CHECK(f.Read("b") == "b1 b2 b3");
  CHECK(f.Read("c").empty());
}

TEST_CASE("LogReader: a few lines of each worker are held, and none is passed over") {
  LogDisk f;
  std::vector<uint64_t> numbers;
  std::string expected;
  for (uint64_t number = 1; number <= 1000; ++number) {
    numbers.push_back(number);
    expected += fmt::format("{}a{} b{}", number == 1 ? "" : " ", number, number);
  }
  f.Store(ChunkOf(numbers));
  f.Store(ChunkOf(numbers, "b"));
  CHECK(f.Read() == expected);
}

TEST_CASE("LogReader: it goes on with what comes later, of new workers too") {
  LogDisk f;
  LogReader reader(*f.folder, "j0001", "");
  CHECK(LogDisk::ReadOn(reader).empty());
  f.Store(ChunkOf({1, 2}));
  CHECK(LogDisk::ReadOn(reader) == "a1 a2");
  f.Store(ChunkOf({3}));
  f.Store(ChunkOf({1}, "b"));
  CHECK(LogDisk::ReadOn(reader) == "b1 a3");
}

TEST_CASE("LogFolder: half a record is cut off at the next start, and comes again") {
  LogDisk f;
  f.Store(ChunkOf({1, 2, 3}));
  const std::string path = f.temporary.path() + "/j0001/" + f.Files()[0];
  fs::resize_file(path, fs::file_size(path) - 2);
  f.Restart();
  CHECK(f.Read() == "a1 a2");
  CHECK(f.Store(ChunkOf({3, 4})) == 4);
  CHECK(f.Read() == "a1 a2 a3 a4");
  CHECK(f.folder->Lost("j0001") == 0);
}

TEST_CASE("LogFolder: a file that cannot be read at the start is an error, and stays") {
  LogDisk f;
  f.Store(ChunkOf({1, 2}));
  const std::string job = f.temporary.path() + "/j0001", path = job + "/" + f.Files()[0];
  f.folder.reset();
  // Who may read all is somebody else meanwhile, whose the folders are, but not the file.
  const bool may_all = geteuid() == 0;
  REQUIRE(chmod(path.c_str(), may_all ? 0600 : 0) == 0);
  if (may_all) {
    constexpr uid_t kNobody = 65'534;
    REQUIRE(chown(f.temporary.path().c_str(), kNobody, 0) == 0);
    REQUIRE(chown(job.c_str(), kNobody, 0) == 0);
    if (seteuid(kNobody) != 0) return;  // not in this sandbox
  }
  const Status opened = LogFolder::Open(f.options).status();
  if (may_all) REQUIRE(seteuid(0) == 0);
  CHECK(opened.code() == absl::StatusCode::kUnavailable);
  CHECK(Message(opened).find(path) != std::string::npos);
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  f.Restart();
  CHECK(f.Read() == "a1 a2");
}

TEST_CASE("LogFolder: what a damaged file has lost is shown") {
  LogDisk f;
  f.Store(ChunkOf({1, 2, 3, 4}));
  const std::string path = f.temporary.path() + "/j0001/" + f.Files()[0];
  std::string text = ReadWhole(path);
  const size_t second = text.find('\n') + 1;
  std::fill(text.begin() + static_cast<ptrdiff_t>(second),
            text.begin() + static_cast<ptrdiff_t>(text.find('\n', second)), '\xff');
  WriteWhole(path, text);
  WriteWhole(f.temporary / "j0001/notes.txt", "mine");
  WriteWhole(f.temporary / "j0001/b@00000000000000000001.log", "nonsense");
  f.Restart();
  CHECK(f.Read() == "a1 +1 a3 a4");
}

TEST_CASE("LogFolder: a job's files are bounded, the oldest lines of the largest worker go") {
  LogDisk f;
  f.options.job_bytes = 20'000;
  f.options.segment_bytes = 1'000;
  f.Restart();
  f.Store(ChunkOf({1, 2}, "b"));
  constexpr uint64_t kLines = 1000;
  for (uint64_t number = 1; number <= kLines; ++number) f.Store(ChunkOf({number}));
  uint64_t bytes = 0;
  for (const std::string& name : f.Files()) {
    bytes += fs::file_size(f.temporary.path() + "/j0001/" + name);
  }
  CHECK(bytes <= 20'000);
  CHECK(f.Read("b") == "b1 b2");

  LogReader reader(*f.folder, "j0001", "a");
  const std::vector<v1::LogLine> lines = reader.Next(kLines);
  REQUIRE(lines.size() > 100);
  CHECK(lines.back().number() == kLines);
  CHECK(lines.front().lost() == lines.front().number() - 1);
  CHECK(lines.front().lost() + lines.size() == kLines);
  CHECK(f.folder->Lost("j0001") == lines.front().lost());
  f.Restart();
  CHECK(f.folder->Lost("j0001") == lines.front().lost());
}

TEST_CASE("LogReader: segments that go while it reads are shown as lost") {
  LogDisk f;
  f.options.job_bytes = 2'000;
  f.options.segment_bytes = 500;
  f.Restart();
  f.Store(ChunkOf({1, 2}));
  LogReader reader(*f.folder, "j0001", "");
  CHECK(LogDisk::ReadOn(reader) == "a1 a2");
  for (uint64_t number = 3; number <= 200; ++number) f.Store(ChunkOf({number}));
  const std::vector<v1::LogLine> rest = reader.Next(200);
  REQUIRE_FALSE(rest.empty());
  CHECK(rest.front().lost() + rest.size() == 198);
}

TEST_CASE("LogFolder: names that could be paths are refused, texts are bounded") {
  LogDisk f;
  for (const char* worker : {"", "a/b", "a@b", "a b"}) {
    INFO(worker);
    CHECK(f.folder->Store(ChunkOf({1}, worker), &IsKnown).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
  v1::LogChunk chunk = ChunkOf({1});
  chunk.set_spool("short");
  CHECK_FALSE(f.folder->Store(chunk, &IsKnown).ok());

  CHECK(f.Store(ChunkOf({1}, "..")) == 1);  // a name that the fleet takes
  CHECK(f.Read("..") == "..1");
  chunk = ChunkOf({1});
  chunk.mutable_lines(0)->set_text(std::string(100'000, '\\'));
  chunk.mutable_lines(0)->set_level("info\nx 1 ");
  f.Store(chunk);
  f.Restart();
  LogReader reader(*f.folder, "j0001", "a");
  const auto lines = reader.Next(10);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].text().size() < 17'000);
  CHECK(lines[0].level() == "infox1");
}

TEST_CASE("LogFolder: what cannot be written is not acknowledged, and may come again") {
  LogDisk f;
  f.Store(ChunkOf({1}));
  const std::string path = f.temporary.path() + "/j0001";
  fs::rename(path, path + ".away");
  CHECK(f.folder->Store(ChunkOf({2, 3}), &IsKnown).status().code() ==
        absl::StatusCode::kUnavailable);
  fs::rename(path + ".away", path);
  CHECK(f.Store(ChunkOf({2, 3})) == 3);
  CHECK(f.Read() == "a1 a2 a3");
}

size_t CountCursors(const std::string& root) {
  size_t cursors = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    cursors += entry.path().extension() == ".cursor" ? 1 : 0;
  }
  return cursors;
}

TEST_CASE_METHOD(LogDisk, "LogFolder: names that anybody can send are not all remembered") {
  options.max_workers = 8;
  Restart();
  CHECK(Store(ChunkOf({1, 2}, "worker")) == 2);
  // Of no job: nothing but what came is known of them.
  for (int i = 0; i < 100; ++i) CHECK(Store(ChunkOf({5}, "x" + std::to_string(i), "none")) == 5);
  CHECK(CountCursors(options.root) == 8);
  // Who was here last is known still, and who left lines of a job is found again.
  CHECK(Store(ChunkOf({4, 5}, "x99", "none")) == 5);
  CHECK(Store(ChunkOf({1, 2, 3}, "worker")) == 3);
  CHECK(Read() == "worker1 worker2 worker3");
  CHECK(folder->Lost("j0001") == 0);
  // A start reads no more of them, either.
  options.max_workers = 4;
  Restart();
  CHECK(CountCursors(options.root) <= 4);
}

TEST_CASE_METHOD(LogDisk, "LogFolder: of a worker's spools the newest few are remembered") {
  v1::LogChunk chunk = ChunkOf({7}, "a", "none");
  for (char digit : std::string("0123456789")) {
    chunk.set_spool(std::string(32, digit));
    CHECK(Store(chunk) == 7);
  }
  chunk.mutable_lines(0)->set_number(3);
  CHECK(Store(chunk) == 7);  // known
  chunk.set_spool(std::string(32, '0'));
  CHECK(Store(chunk) == 3);  // forgotten
}

// Else what a worker logs for its next job would seem to follow thousands of lines that were lost.
TEST_CASE_METHOD(LogDisk, "LogFolder: a job's lines go, and what came of a spool stays known") {
  CHECK(Store(ChunkOf({1, 2, 3})) == 3);
  CHECK(Store(ChunkOf({1, 2}, "b", "j0002")) == 2);
  REQUIRE(folder->Remove("j0001").ok());
  CHECK(Read().empty());
  CHECK_FALSE(fs::exists(options.root + "/j0001"));
  CHECK(Read("", "j0002") == "b1 b2");
  if (GENERATE(false, true)) Restart();
  CHECK(Store(ChunkOf({3, 4}, "a", "j0003")) == 4);
  CHECK(Read("", "j0003") == "a4");
  CHECK(folder->Remove("j0001").ok());
}

TEST_CASE_METHOD(LogDisk, "LogFolder: of all spools of a removed job's worker it stays known") {
  v1::LogChunk other = ChunkOf({1, 2}, "a", "j0002");
  other.set_spool(std::string(32, 'b'));
  CHECK(Store(ChunkOf({1, 2, 3})) == 3);
  CHECK(Store(other) == 2);
  REQUIRE(folder->Remove("j0001").ok());
  const auto written = fs::last_write_time(options.root + "/a.cursor");
  REQUIRE(folder->Remove("j0002").ok());  // nothing came since
  CHECK(fs::last_write_time(options.root + "/a.cursor") == written);
  Restart();
  CHECK(Store(ChunkOf({1, 2, 3}, "a", "j0003")) == 3);
  CHECK(Store(other) == 2);
  CHECK(Read("", "j0003").empty());
  CHECK(Read("", "j0002").empty());
}

TEST_CASE_METHOD(LogDisk, "LogFolder: a chunk without lines leaves nothing behind") {
  options.max_workers = 1;
  Restart();
  CHECK(Store(ChunkOf({5}, "a", "none")) == 5);
  CHECK(Store(ChunkOf({}, "b", "none")) == 0);
  CHECK(Store(ChunkOf({4}, "a", "none")) == 5);
}

}  // namespace
}  // namespace ringmaster::coordinator
