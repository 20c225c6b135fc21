// A reader's threads, on loaders that delay, fail or hang where a test wants it.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "common/data/sample_data.h"
#include "common/mutex.h"
#include "tests/support/fake_input_stage.h"
#include "tests/support/image_data.h"
#include "tests/support/temporary_folder.h"
#include "worker/data/reader.h"

namespace ringmaster::worker {
namespace {

constexpr uint32_t kBatch = 60, kShards = 2;
constexpr uint64_t kSteps = 6;

using InputResult = StatusOr<std::shared_ptr<const ShardBatch>>;

std::chrono::steady_clock::time_point InputDeadline() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

template <typename Done>
void AwaitInput(const Done& done) {
  for (const auto deadline = InputDeadline(); !done();) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
}

// Something that one thread waits for and another one says.
class Gate {
 public:
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  [[nodiscard]] bool Wait() {
    MutexLock lock(mu_);
    return changed_.WaitUntil(mu_, InputDeadline(),
                              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return open_; });
  }

 private:
  Mutex mu_;
  Condition changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

// Does something before each run of rows; its error is the run's.
class InterruptedLoader : public ShardLoader {
 public:
  using Before = std::function<Status(const BatchId& id, size_t begin)>;
  InterruptedLoader(const std::shared_ptr<const Dataset>& dataset, const v1::ResultSpec& spec,
                    std::shared_ptr<const graph::Augmenter> augmenter, Before before)
      : ShardLoader(dataset, spec, std::move(augmenter)), before_(std::move(before)) {}

  Status LoadRows(size_t begin, size_t end, LoadScratch* scratch,
                  ShardBatch* batch) const override {
    RING_RETURN_IF_ERROR(before_(batch->id, begin));
    return ShardLoader::LoadRows(begin, end, scratch, batch);
  }

 private:
  const Before before_;
};

// 120 images, batch 60, 2 shards: runs of rows 0 to 7, 8 to 15, 16 to 23 and 24 to 29.
class InputFixture {
 public:
  InputFixture() {
    REQUIRE(data::MakeSampleData(folder_ / "d", {.train = 120, .test = 10, .seed = 2}).ok());
    v1::DataSource source;
    source.set_format("cifar10");
    source.set_path("d");
    auto dataset = Dataset::Open({folder_.path(), ""}, source);
    REQUIRE(dataset.ok());
    dataset_ = *dataset;
    *spec_.mutable_data() = dataset_->facts();
    spec_.mutable_data_use()->set_train_samples(120);
    testing::SetColumns(32, 32, 3, &spec_);
    spec_.set_batch(kBatch);
    spec_.set_shards(kShards);
    spec_.set_steps_per_epoch(2);
    spec_.set_evaluation_steps(2);
    spec_.set_total_steps(kSteps);
    spec_.set_seed(9);
    spec_.add_augment()->mutable_random_flip();
  }

 protected:
  [[nodiscard]] std::shared_ptr<const ShardLoader> Images(InterruptedLoader::Before before) const {
    return std::make_shared<InterruptedLoader>(dataset_, spec_, MakeAugmenter(spec_),
                                               std::move(before));
  }
  [[nodiscard]] std::shared_ptr<const ShardLoader> Pixels(InterruptedLoader::Before before) const {
    return std::make_shared<InterruptedLoader>(dataset_, spec_, nullptr, std::move(before));
  }

  TemporaryFolder folder_;
  std::shared_ptr<const Dataset> dataset_;
  v1::ResultSpec spec_;
};

Status NothingBefore(const BatchId& /*id*/, size_t /*begin*/) { return absl::OkStatus(); }

// Takes its time, so often as `rounds` says; a thread that yields would wait for whatever else the
// machine does.
void Dawdle(uint32_t rounds) {
  for (std::atomic<uint32_t> left = rounds; left > 0;) --left;
}

// For up to some 100 us, and now and then gives way, as a generator of the calling thread says.
InterruptedLoader::Before RandomDelay(uint32_t seed) {
  return [seed](const BatchId& /*id*/, size_t begin) {
    thread_local std::minstd_rand random(
        seed +
        static_cast<uint32_t>(std::hash<std::thread::id>()(std::this_thread::get_id()) % 1000003));
    Dawdle(static_cast<uint32_t>((random() + begin) % 20'000));
    if (random() % 8 == 0) std::this_thread::yield();
    return absl::OkStatus();
  };
}

bool SameRows(const ShardBatch& a, const ShardBatch& b) {
  return a.id == b.id && a.batch_samples == b.batch_samples && a.samples == b.samples &&
         std::ranges::equal(*a.column("label"), *b.column("label")) &&
         std::ranges::equal(*a.column("image"), *b.column("image")) &&
         std::ranges::equal(a.pixels.span(), b.pixels.span());
}

std::vector<BatchId> TrainingBatches() {
  std::vector<BatchId> ids;
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (uint32_t shard = 0; shard < kShards; ++shard)
      ids.push_back(BatchId::Training(step, shard));
  }
  return ids;
}

TEST_CASE_METHOD(InputFixture, "Input threads: none, one or many give the same bytes, delayed") {
  const auto calm = Images(NothingBefore), calm_pixels = Pixels(NothingBefore);
  for (const uint32_t threads : {0, 1, 2, 7}) {
    for (const bool as_pixels : {false, true}) {
      INFO("threads " << threads << " pixels " << as_pixels);
      FakeInputStage stage({.slots = 3, .slot_bytes = size_t{1} << 20});
      const auto loader = as_pixels ? Pixels(RandomDelay(threads)) : Images(RandomDelay(threads));
      std::vector<std::vector<InputResult>> got(kShards);
      {
        Reader reader(loader, {.shards = {0, 1}, .input = {.threads = threads}, .stage = &stage});
        std::vector<std::jthread> cores;
        for (uint32_t shard = 0; shard < kShards; ++shard) {
          cores.emplace_back([&, shard] {
            for (uint64_t step = 0; step < kSteps; ++step) {
              got[shard].push_back(reader.Get(BatchId::Training(step, shard), InputDeadline()));
            }
          });
        }
      }
      const ShardLoader& expected = as_pixels ? *calm_pixels : *calm;
      for (const BatchId& id : TrainingBatches()) {
        const InputResult& batch = got[id.shard][id.step];
        REQUIRE(batch.ok());
        CHECK(SameRows(**batch, **expected.Load(id)));
      }
      if (threads == 0) CHECK(stage.brought() == 0);
    }
  }
}

TEST_CASE_METHOD(InputFixture, "Input threads: a batch has the error of its lowest row") {
  const auto failing = [](size_t begin) { return DataLoss("a row of the run at {}", begin); };
  // With somebody beside Get both runs are in hand before either fails, and one of them gives way
  // for so long that the other one is told first.
  for (const auto& [threads, late] :
       std::vector<std::pair<uint32_t, size_t>>{{0, 16}, {1, 8}, {7, 8}, {1, 16}, {7, 16}}) {
    INFO("threads " << threads << " late " << late);
    Gate low, high;
    std::atomic<bool> in_time = true;
    const auto loader =
        Images([&, threads = threads, late = late](const BatchId& id, size_t begin) -> Status {
          if (id.step != 1 || begin == 0) return absl::OkStatus();
          (begin == 8 ? low : high).Open();
          if (threads > 0 && begin <= 16 && !(begin == 8 ? high : low).Wait()) in_time = false;
          if (begin == late) Dawdle(1'000'000);
          return failing(begin);
        });
    Reader reader(loader, {.shards = {0}, .start_step = 1, .input = {.threads = threads}});
    CHECK(Message(reader.Get(BatchId::Training(1, 0), InputDeadline()).status()) ==
          "a row of the run at 8");
    CHECK(in_time);
    // It is no other batch's.
    CHECK(reader.Get(BatchId::Training(2, 0), InputDeadline()).ok());
  }
}

TEST_CASE_METHOD(InputFixture, "Input threads: Stop ends a wait for rows that a thread has") {
  Gate begun, end;
  const auto loader = Images([&](const BatchId& /*id*/, size_t begin) -> Status {
    if (begin != 24) return absl::OkStatus();
    begun.Open();
    return end.Wait() ? absl::OkStatus() : absl::DeadlineExceededError("nobody ended it");
  });
  Reader reader(loader, {.shards = {0}, .ahead = 1, .input = {.threads = 2}});
  REQUIRE(begun.Wait());  // every run is claimed
  InputResult got = absl::UnknownError("not yet");
  std::jthread core([&] { got = reader.Get(BatchId::Training(0, 0), InputDeadline()); });
  reader.Stop();
  core.join();
  CHECK(got.status().code() == absl::StatusCode::kCancelled);
  end.Open();
}

TEST_CASE_METHOD(InputFixture, "Input threads: a deadline ends such a wait, and it can go on") {
  Gate begun, end;
  const auto loader = Images([&](const BatchId& id, size_t begin) -> Status {
    if (id.step != 0 || begin != 24) return absl::OkStatus();
    begun.Open();
    return end.Wait() ? absl::OkStatus() : absl::DeadlineExceededError("nobody ended it");
  });
  Reader reader(loader, {.shards = {0}, .ahead = 1, .input = {.threads = 2}});
  REQUIRE(begun.Wait());
  const InputResult late = reader.Get(BatchId::Training(0, 0), std::chrono::steady_clock::now());
  CHECK(Message(late.status()) == "shard 0 of step 0 was still being read at its deadline");
  end.Open();
  const InputResult batch = reader.Get(BatchId::Training(0, 0), InputDeadline());
  REQUIRE(batch.ok());
  CHECK(SameRows(**batch, **Images(NothingBefore)->Load(BatchId::Training(0, 0))));
}

TEST_CASE_METHOD(InputFixture, "Input threads: rows ahead stay within the memory that they have") {
  const uint64_t bytes = Images(NothingBefore)->Bytes(BatchId::Training(0, 0));
  REQUIRE(bytes == 30 * (8 + 4 + sizeof(float) * data::kCifarPixels));
  for (const uint64_t memory : {uint64_t{1}, bytes, 3 * bytes - 1, 100 * bytes}) {
    INFO("memory for " << double(memory) / double(bytes) << " batches");
    const uint64_t batches = std::clamp<uint64_t>(memory / bytes, 1, 4);  // two steps' worth
    std::atomic<const Reader*> reader_seen = nullptr;
    std::atomic<uint64_t> most = 0;
    const auto loader = Images([&](const BatchId& /*id*/, size_t /*begin*/) {
      if (const Reader* const reader = reader_seen) {
        most = std::max<uint64_t>(most, reader->held_bytes());
      }
      return absl::OkStatus();
    });
    Reader reader(loader, {.shards = {0, 1}, .input = {.threads = 2, .memory_bytes = memory}});
    reader_seen = &reader;
    for (const BatchId& id : TrainingBatches()) {
      const uint64_t left = kShards * (kSteps - id.step) - id.shard;
      AwaitInput([&] { return reader.held() == std::min(batches, left); });
      CHECK(reader.held_bytes() == std::min(batches, left) * bytes);
      REQUIRE(reader.Get(id, InputDeadline()).ok());
    }
    CHECK(reader.held_bytes() <= batches * bytes);
    CHECK(most <= batches * bytes);
    reader.Stop();
    reader_seen = nullptr;
  }
}

TEST_CASE_METHOD(InputFixture, "Input threads: what is passed over gives its memory back") {
  Gate begun, end;
  const auto loader = Images([&](const BatchId& id, size_t begin) -> Status {
    if (id.step != 0 || begin != 0) return absl::OkStatus();
    begun.Open();
    return end.Wait() ? absl::OkStatus() : absl::DeadlineExceededError("nobody ended it");
  });
  const uint64_t bytes = loader->Bytes(BatchId::Training(0, 0));
  Reader reader(loader,
                {.shards = {0}, .ahead = 1, .input = {.threads = 1, .memory_bytes = bytes}});
  REQUIRE(begun.Wait());
  CHECK(reader.held_bytes() == bytes);
  // Its rows are still in hand, so it still counts.
  REQUIRE(reader.Get(BatchId::Training(3, 0), InputDeadline()).ok());
  CHECK(reader.held_bytes() == bytes);
  end.Open();
  AwaitInput([&] { return reader.held() == 1; });
  CHECK(reader.held_bytes() == bytes);
  const InputResult next = reader.Get(BatchId::Training(4, 0), InputDeadline());
  REQUIRE(next.ok());
  CHECK(SameRows(**next, **Images(NothingBefore)->Load(BatchId::Training(4, 0))));
}

TEST_CASE_METHOD(InputFixture, "Input threads: the work on steps is counted, once") {
  spec_.mutable_data_use()->set_test_samples(10);
  const auto loader = Images(NothingBefore);
  Reader reader(loader, {.shards = {0}, .input = {.threads = 0}});
  CHECK(reader.TakeSeconds() == 0);
  REQUIRE(reader.Get(BatchId::Training(0, 0), InputDeadline()).ok());
  CHECK(reader.TakeSeconds() > 0);
  CHECK(reader.TakeSeconds() == 0);
  REQUIRE(reader.Get(BatchId::Evaluation(2, job::SampleSet::kTest, 0, 0), InputDeadline()).ok());
  CHECK(reader.TakeSeconds() == 0);
}

}  // namespace
}  // namespace ringmaster::worker
