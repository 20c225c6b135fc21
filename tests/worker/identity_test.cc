#include "worker/identity.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/files.h"
#include "common/mutex.h"
#include "tests/support/temporary_folder.h"
#include "worker/term_store.h"

namespace ringmaster::worker {
namespace {

// The answers of a TermStore, in order. Thread-safe.
class Answers {
 public:
  void Add(const Event& event) {
    MutexLock lock(mu_);
    all_.push_back(std::get<TermStored>(event));
    changed_.NotifyAll();
  }
  std::vector<TermStored> Await(size_t count) {
    MutexLock lock(mu_);
    (void)changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(60),
                             [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return all_.size() >= count; });
    return all_;
  }

 private:
  Mutex mu_;
  Condition changed_;
  std::vector<TermStored> all_ ABSL_GUARDED_BY(mu_);
};

TEST_CASE("TermStore: the highest term outlives the process") {
  const TemporaryFolder folder;
  CHECK(*TermStore::Load(folder.path()) == 0);
  Answers answers;
  TermStore terms({folder.path()}, [&](const Event& event) { answers.Add(event); });
  terms.Start();
  terms.Store(7);
  terms.Store(8);
  const auto said = answers.Await(2);
  REQUIRE(said.size() == 2);
  CHECK(said[0].term == 7);
  CHECK(said[1].term == 8);
  for (const TermStored& answer : said) CHECK(answer.error.empty());
  CHECK(*TermStore::Load(folder.path()) == 8);
}

TEST_CASE("TermStore: a lower term never takes the place of a higher one") {
  const TemporaryFolder folder;
  Answers answers;
  TermStore terms({folder.path()}, [&](const Event& event) { answers.Add(event); });
  terms.Store(6);
  terms.Store(5);
  terms.Start();
  const auto said = answers.Await(2);
  REQUIRE(said.size() == 2);
  CHECK(said[1].error.empty());
  CHECK(*TermStore::Load(folder.path()) == 6);
}

TEST_CASE("TermStore: a term that cannot be stored is said to be not, with the path") {
  const TemporaryFolder folder;
  Answers answers;
  TermStore terms({folder / "gone"}, [&](const Event& event) { answers.Add(event); });
  terms.Start();
  terms.Store(7);
  const auto said = answers.Await(1);
  REQUIRE(said.size() == 1);
  CHECK(said[0].term == 7);
  CHECK_THAT(said[0].error, Catch::Contains(folder / "gone"));
}

TEST_CASE("TermStore: a disk that does not answer is given up, once") {
  const TemporaryFolder folder;
  Answers answers;
  TermStore terms({folder.path(), std::chrono::milliseconds(0)},
                  [&](const Event& event) { answers.Add(event); });
  terms.Store(7);  // its thread does not run yet
  terms.GiveUpLate();
  terms.GiveUpLate();
  terms.Start();
  terms.Stop();  // after what waits
  const auto said = answers.Await(1);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0].error, Catch::Contains("takes longer than 0 ms"));
  CHECK(*TermStore::Load(folder.path()) == 7);
}

TEST_CASE("TermStore: a term that is not a number is not taken for zero") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/term") << "seven";
  CHECK(TermStore::Load(folder.path()).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("WriteDurably: it replaces a file whole and leaves no temporary") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  REQUIRE(WriteDurably(path, "first, longer").ok());
  REQUIRE(WriteDurably(path, "second").ok());
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  CHECK(text == "second");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("WriteDurably: a folder that is not there is an error that names it") {
  const Status status = WriteDurably("/nonexistent/file", "x");
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Message(status).find("/nonexistent/file") != std::string::npos);
}

}  // namespace
}  // namespace ringmaster::worker
