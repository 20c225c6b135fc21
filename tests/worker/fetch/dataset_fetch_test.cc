#include "worker/fetch/dataset_fetch.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <latch>
#include <mutex>

#include "common/mutex.h"
#include "common/signals.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/fetch/fake_data.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;

const FakeFiles kFiles = {{"large", Content(5 * kPieceBytes + 77, 'l')},
                          {"sub/small", "small"},
                          {"sub/other", Content(3'000, 'o')}};

// A clock that stands still until a test moves it. Thread-safe.
class Hands {
 public:
  using Time = std::chrono::steady_clock::time_point;
  [[nodiscard]] Time Look() {
    MutexLock lock(mu_);
    ++looks_;
    looked_.NotifyAll();
    return at_;
  }
  void Move(milliseconds by) {
    MutexLock lock(mu_);
    at_ += by;
  }
  // Likewise, and waits until somebody has looked at it since; false: nobody does.
  [[nodiscard]] bool MoveAndShow(milliseconds by) {
    MutexLock lock(mu_);
    at_ += by;
    const auto shown = [this, before = looks_]()
                           ABSL_NO_THREAD_SAFETY_ANALYSIS { return looks_ > before; };
    return looked_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::minutes(1),
                             shown);
  }

 private:
  Mutex mu_;
  Condition looked_;
  Time at_ ABSL_GUARDED_BY(mu_){std::chrono::hours(1)};
  int looks_ ABSL_GUARDED_BY(mu_) = 0;
};

struct Fetching {
  explicit Fetching(DatasetFetch::Options options = {})
      : cache({folder / "cache"}), fetch(&cache, Quick(options)) {}
  // Sources are asked again at once.
  static DatasetFetch::Options Quick(DatasetFetch::Options options) {
    options.pause = milliseconds(1);
    options.longest_pause = milliseconds(1);
    return options;
  }
  static std::shared_ptr<FakeSource> Source(const std::string& name, FakeFiles files = kFiles) {
    return std::make_shared<FakeSource>(name, std::move(files));
  }
  // Runs it, and compares what is there when it went well.
  Status Run(const DatasetFetch::Sources& sources, const std::stop_token& stop = {}) {
    auto data = fetch.Run("data", sources, stop);
    CHECK_FALSE(fetch.progress());
    if (!data.ok()) return data.status();
    for (const auto& [name, content] : kFiles) {
      CHECK(
          (ReadWhole((*data)->folder() + "/files/" + name) == content));  // not printed: it is long
    }
    return absl::OkStatus();
  }

  TemporaryFolder folder;
  DataCache cache;
  DatasetFetch fetch;
};

TEST_CASE("DatasetFetch: a dataset comes whole, four pieces at a time, and is not fetched twice") {
  Fetching here;
  const auto source = Fetching::Source("a");
  std::latch all(4);  // four are under way at the same time, or this never ends
  std::atomic<int> reads = 0;
  source->OnRead([&](const auto&, auto, auto, const auto&) {
    if (reads++ < 4) all.arrive_and_wait();
    return absl::OkStatus();
  });
  REQUIRE(here.Run({source}).ok());
  CHECK(source->reads() == 8);
  CHECK(source->most_at_a_time() == 4);
  REQUIRE(here.Run({source}).ok());
  CHECK(source->reads() == 8);
}

TEST_CASE("DatasetFetch: a piece of other bytes is thrown away, and its source asked no more") {
  Fetching here;
  const auto liar = Fetching::Source("liar"), honest = Fetching::Source("honest");
  liar->OnRead([](const SourceFile& file, uint64_t, std::span<uint8_t> bytes, const auto&) {
    if (file.name == "large") bytes[bytes.size() / 2] ^= 1;
    return absl::OkStatus();
  });
  REQUIRE(here.Run({liar, honest}).ok());
  CHECK(liar->reads() <= 4);  // those that were under way
  Fetching alone;
  const Status status = alone.Run({liar});
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(Message(status),
             Catch::Contains("liar: large: the ") && Catch::Contains("are not those of the list"));
}

TEST_CASE("DatasetFetch: a source that is cut rests while others go on, and is asked again") {
  Fetching here;
  const auto cut = Fetching::Source("cut");
  std::atomic<int> reads = 0;
  cut->OnRead([&](const auto&, auto, auto, const auto&) {
    return ++reads % 2 == 1 ? absl::UnavailableError("the stream broke") : absl::OkStatus();
  });
  REQUIRE(here.Run({cut}).ok());
  CHECK(cut->reads() > 8);
  Fetching both;
  const auto dead = Fetching::Source("dead");
  dead->OnRead([](const auto&, auto, auto, const auto&) { return absl::UnavailableError("gone"); });
  REQUIRE(both.Run({dead, Fetching::Source("b")}).ok());
}

TEST_CASE("DatasetFetch: a fetch without any progress ends, and says who said what") {
  DatasetFetch::Options options;
  Hands hands;
  options.silence = milliseconds(30);
  options.now = [&] { return hands.Look(); };
  Fetching here(options);
  const auto dead = Fetching::Source("worker a at 10.0.0.1:1");
  dead->OnRead([&](const auto&, auto, auto, const auto&) {
    hands.Move(milliseconds(10));
    return absl::UnavailableError("refused");
  });
  const Status status = here.Run({dead});
  CHECK(dead->reads() >= 3);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(Message(status), Catch::Contains("no piece came for") &&
                                  Catch::Contains("worker a at 10.0.0.1:1: refused"));
}

TEST_CASE("DatasetFetch: a piece that takes longer than silence may is waited for") {
  DatasetFetch::Options options;
  Hands hands;
  options.silence = milliseconds(30);
  options.now = [&] { return hands.Look(); };
  Fetching here(options);
  const auto slow = Fetching::Source("slow");
  slow->OnRead([&](const auto&, auto offset, auto, const auto&) -> Status {
    if (offset < 5 * kPieceBytes) return absl::OkStatus();
    // Once for each of the other seven, which may come meanwhile, and once more.
    for (int i = 0; i < 8; ++i) {
      if (!hands.MoveAndShow(4 * options.silence)) return absl::InternalError("nobody looked");
    }
    return absl::OkStatus();
  });
  REQUIRE(here.Run({slow}).ok());
}

TEST_CASE("DatasetFetch: pieces that are late side by side come one after the other") {
  Fetching here;
  const auto narrow = Fetching::Source("narrow");
  std::latch all(4);
  std::atomic<int> reads = 0, now = 0, most = 0;
  narrow->OnRead([&](const auto&, auto, auto, const FetchLimits& limits) -> Status {
    if (reads++ < 4) {
      all.arrive_and_wait();
      return absl::DeadlineExceededError("late");
    }
    most = std::max(most.load(), ++now);
    (void)WaitForStop(limits.stop, milliseconds(2));  // so that others could be beside it
    --now;
    return absl::OkStatus();
  });
  REQUIRE(here.Run({narrow}).ok());
  CHECK(most <= 2);  // of the four one may go on before the last was late
}

TEST_CASE("DatasetFetch: the first source that has it is taken, others are passed over") {
  Fetching here;
  const auto none = Fetching::Source("none"), late = Fetching::Source("late");
  none->OnList([]() { return absl::NotFoundError("it has none"); });
  std::atomic<int> asked = 0;
  const auto list = ListOf(kFiles).files;
  late->OnList([&]() -> StatusOr<std::vector<SourceFile>> {
    if (++asked < 3) return absl::UnavailableError("not yet");
    return list;
  });
  none->OnRead(
      [](const auto&, auto, auto, const auto&) { return absl::NotFoundError("it has none"); });
  REQUIRE(here.Run({none, late}).ok());
  CHECK(none->lists() == 1);
  CHECK(late->lists() == 3);
}

TEST_CASE("DatasetFetch: where nobody has it that is said at once, with who was asked") {
  Fetching here;
  const auto a = Fetching::Source("worker a"), b = Fetching::Source("the coordinator");
  a->OnList([]() { return absl::NotFoundError("it has no such dataset either"); });
  b->OnList([]() { return absl::NotFoundError("it has no --data-root"); });
  const Status status = here.Run({a, b});
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Message(status), Catch::Contains("worker a: it has no such dataset either") &&
                                  Catch::Contains("the coordinator: it has no --data-root"));
  CHECK(a->lists() == 1);
  CHECK(here.Run({}).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("DatasetFetch: a source that never comes is waited for so long and no longer") {
  DatasetFetch::Options options;
  Hands hands;
  options.patience = milliseconds(20);
  options.now = [&] { return hands.Look(); };
  Fetching here(options);
  const auto never = Fetching::Source("never");
  never->OnList([&]() {
    hands.Move(milliseconds(10));
    return absl::UnavailableError("connection refused");
  });
  const Status status = here.Run({never});
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Message(status), Catch::Contains("never: connection refused"));
  CHECK(never->lists() == 3);  // at 10 ms it said so first
}

TEST_CASE("DatasetFetch: a list that cannot be is the source's fault") {
  Fetching here;
  const auto liar = Fetching::Source("liar");
  liar->OnList([]() { return std::vector<SourceFile>{{"../../etc/passwd", 5, {}, "v"}}; });
  REQUIRE(here.Run({liar, Fetching::Source("honest")}).ok());
  const Status status = Fetching().Run({liar});
  CHECK_THAT(Message(status), Catch::Contains("../../etc/passwd"));
}

TEST_CASE("DatasetFetch: a dataset that changes meanwhile is listed anew") {
  Fetching here;
  const auto source = Fetching::Source("url");
  std::vector<SourceFile> files = ListOf(kFiles).files;
  std::atomic<int> lists = 0;
  source->OnList([&]() -> StatusOr<std::vector<SourceFile>> {
    std::vector<SourceFile> listed = files;
    ++lists;
    for (SourceFile& file : listed) {
      file.pieces.clear();
      file.version = std::to_string(lists);
    }
    return listed;
  });
  source->OnRead([&](const SourceFile& file, auto, auto, const auto&) {
    if (file.version == "1") return absl::FailedPreconditionError("it is another one now");
    return absl::OkStatus();
  });
  REQUIRE(here.Run({source}).ok());
  CHECK(lists == 2);
}

TEST_CASE("DatasetFetch: a stop ends it at once, and what came is there for the next time") {
  Fetching here;
  const auto source = Fetching::Source("slow");
  std::stop_source stop;
  std::atomic<int> reads = 0;
  source->OnRead([&](const auto&, auto, auto, const FetchLimits& limits) -> Status {
    if (++reads <= 3) return absl::OkStatus();
    stop.request_stop();
    return limits.stop.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
  });
  CHECK(here.Run({source}, stop.get_token()).code() == absl::StatusCode::kCancelled);
  const auto again = Fetching::Source("quick");
  REQUIRE(here.Run({again}).ok());
  CHECK(again->reads() == 5);
}

TEST_CASE("DatasetFetch: a dataset that nobody has any more is taken from the cache") {
  Fetching here;
  REQUIRE(here.Run({Fetching::Source("a")}).ok());
  const auto gone = Fetching::Source("a");
  gone->OnList([]() { return absl::NotFoundError("gone"); });
  REQUIRE(here.Run({gone}).ok());
  CHECK(gone->reads() == 0);
}

TEST_CASE("DatasetFetch: what the disk refuses ends it") {
  // A file beneath a file cannot be made.
  Fetching here;
  const auto source = Fetching::Source("a");
  const std::string files = here.folder / "cache/" + ListOf(kFiles).Id() + ".partial/files";
  std::once_flag once;
  source->OnRead([&](const auto&, auto, auto, const auto&) {
    std::call_once(once, [&]() { WriteWhole(files + "/sub", "in the way"); });
    return absl::OkStatus();
  });
  const Status status = here.Run({source});
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(Message(status), Catch::Contains("cannot make ") && Catch::Contains("/files/sub/"));
}

TEST_CASE("DatasetFetch: progress says how much there is, of how much, and from whom") {
  Fetching here;
  const auto source = Fetching::Source("worker a");
  std::atomic<int> reads = 0;
  std::optional<v1::DataFetch> seen;
  source->OnList([&]() -> StatusOr<std::vector<SourceFile>> {
    const auto asks = here.fetch.progress();
    if (!asks || asks->source() != "worker a" || asks->total_bytes() != 0) {
      return absl::InternalError("no progress while it is listed");
    }
    return ListOf(kFiles).files;
  });
  Mutex mutex;
  source->OnRead([&](const auto&, auto, auto, const auto&) {
    MutexLock lock(mutex);
    if (++reads == 8) seen = here.fetch.progress();
    return absl::OkStatus();
  });
  REQUIRE(here.Run({source}).ok());
  REQUIRE(seen);
  CHECK(seen->total_bytes() == ListOf(kFiles).bytes());
  CHECK(seen->bytes() > 0);
  CHECK(seen->bytes() < seen->total_bytes());
  CHECK(seen->source() == "worker a");
}

}  // namespace
}  // namespace ringmaster::worker
