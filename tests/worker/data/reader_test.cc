#include "worker/data/reader.h"

#include <xmmintrin.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <thread>

#include "common/data/sample_data.h"
#include "common/job/shards.h"
#include "tests/support/fake_input_stage.h"
#include "tests/support/image_data.h"
#include "tests/support/temporary_folder.h"
#include "worker/backend/failure.h"

namespace ringmaster::worker {
namespace {

using Batch = StatusOr<std::shared_ptr<const ShardBatch>>;

std::chrono::steady_clock::time_point Soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(30);
}

template <typename T>
std::span<const T> RowsOf(const ShardBatch& batch, const std::string& column) {
  const std::span<const std::byte> bytes = batch.column(column).value();
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}
std::span<const float> ImagesOf(const ShardBatch& batch) { return RowsOf<float>(batch, "image"); }
std::span<const int32_t> LabelsOf(const ShardBatch& batch) {
  return RowsOf<int32_t>(batch, "label");
}

// 10 training and 5 test images, batch 4, 3 shards: epochs of 3 steps, the last with 2 samples.
class ReaderFixture {
 public:
  ReaderFixture() {
    REQUIRE(data::MakeSampleData(folder_ / "d", {.train = 10, .test = 5, .seed = 2}).ok());
    v1::DataSource source;
    source.set_format("cifar10");
    source.set_path("d");
    auto dataset = Dataset::Open({folder_.path(), ""}, source);
    REQUIRE(dataset.ok());
    v1::ResultSpec spec;
    *spec.mutable_data() = (*dataset)->facts();
    spec.mutable_data_use()->set_train_samples(10);
    spec.mutable_data_use()->set_test_samples(5);
    testing::SetColumns(32, 32, 3, &spec);
    spec.set_batch(4);
    spec.set_shards(3);
    spec.set_steps_per_epoch(3);
    spec.set_evaluation_steps(3);
    spec.set_total_steps(7);
    spec.set_seed(9);
    spec.add_augment()->mutable_random_crop()->set_padding(4);
    spec.add_augment()->mutable_random_flip();
    spec.add_augment()->mutable_per_image_standardization();
    dataset_ = *dataset;
    spec_ = spec;
    loader_ = std::make_shared<ShardLoader>(dataset_, spec, MakeAugmenter(spec));
    pixels_ = std::make_shared<ShardLoader>(dataset_, spec, nullptr);
  }
  // 6 training and 4 validation samples of the 10: epochs of 2 steps.
  std::shared_ptr<const ShardLoader> WithValidation() const {
    v1::ResultSpec spec = spec_;
    spec.mutable_data_use()->set_train_samples(6);
    spec.mutable_data_use()->set_validation_samples(4);
    spec.mutable_data_use()->set_validation_begin(2);
    spec.set_batch(3);
    spec.set_steps_per_epoch(2);
    spec.set_evaluation_steps(2);
    spec.set_total_steps(4);
    return std::make_shared<ShardLoader>(dataset_, spec, MakeAugmenter(spec));
  }
  void TruncateFiles() const {
    for (const v1::DataFile& file : dataset_->facts().files()) {
      std::filesystem::resize_file(folder_ / ("d/" + file.name()), 0);
    }
  }

 protected:
  v1::ResultSpec spec_;
  TemporaryFolder folder_;
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const ShardLoader> loader_;
  std::shared_ptr<const ShardLoader> pixels_;  // the same job's, for cores that augment
};

bool SameContent(const ShardBatch& a, const ShardBatch& b) {
  return a.id == b.id && a.batch_samples == b.batch_samples && a.samples == b.samples &&
         std::ranges::equal(LabelsOf(a), LabelsOf(b)) &&
         std::ranges::equal(ImagesOf(a), ImagesOf(b)) &&
         std::ranges::equal(a.pixels.span(), b.pixels.span());
}

// All batches of the job in the order in which a trainer asks.
std::vector<BatchId> Plan(const ShardLoader& loader, const std::vector<uint32_t>& shards) {
  std::vector<BatchId> plan;
  const v1::ResultSpec& spec = loader.spec();
  for (uint64_t step = 0; step < spec.total_steps(); ++step) {
    for (const uint32_t shard : shards) plan.push_back(BatchId::Training(step, shard));
    if (!job::EvaluatesAfter(step + 1, spec.evaluation_steps(), spec.total_steps())) continue;
    for (const job::SampleSet set : {job::SampleSet::kValidation, job::SampleSet::kTest}) {
      for (uint64_t batch = 0; batch < loader.evaluation_batches(set); ++batch) {
        for (const uint32_t shard : shards) {
          plan.push_back(BatchId::Evaluation(step + 1, set, batch, shard));
        }
      }
    }
  }
  return plan;
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: an epoch's shards hold every sample once") {
  for (const uint64_t epoch : {0, 1}) {
    std::multiset<uint64_t> seen;
    for (uint64_t step = 3 * epoch; step < 3 * epoch + 3; ++step) {
      for (uint32_t shard = 0; shard < 3; ++shard) {
        const Batch batch = loader_->Load(BatchId::Training(step, shard));
        REQUIRE(batch.ok());
        CHECK((*batch)->batch_samples == (step % 3 == 2 ? 2 : 4));
        CHECK(LabelsOf(**batch).size() == (*batch)->samples.size());
        CHECK(ImagesOf(**batch).size() == (*batch)->samples.size() * data::kCifarPixels);
        seen.insert((*batch)->samples.begin(), (*batch)->samples.end());
      }
    }
    CHECK(seen == std::multiset<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: a shard of a small last batch may be empty") {
  const Batch batch = loader_->Load(BatchId::Training(2, 0));
  REQUIRE(batch.ok());
  CHECK((*batch)->samples.empty());
  CHECK(ImagesOf(**batch).empty());
  CHECK((*batch)->batch_samples == 2);
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: evaluation takes the test set in order, unaltered") {
  std::vector<uint64_t> seen;
  for (uint64_t number = 0; number < loader_->evaluation_batches(job::SampleSet::kTest); ++number) {
    for (uint32_t shard = 0; shard < 3; ++shard) {
      const Batch batch =
          loader_->Load(BatchId::Evaluation(3, job::SampleSet::kTest, number, shard));
      const Batch later =
          loader_->Load(BatchId::Evaluation(6, job::SampleSet::kTest, number, shard));
      REQUIRE(batch.ok());
      REQUIRE(later.ok());
      CHECK(std::ranges::equal(ImagesOf(**batch), ImagesOf(**later)));
      seen.insert(seen.end(), (*batch)->samples.begin(), (*batch)->samples.end());
    }
  }
  CHECK(seen == std::vector<uint64_t>{0, 1, 2, 3, 4});
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: images start at a multiple of 64 bytes") {
  const Batch batch = loader_->Load(BatchId::Training(0, 2));
  REQUIRE(batch.ok());
  CHECK(reinterpret_cast<uintptr_t>(ImagesOf(**batch).data()) % 64 == 0);
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: of pixels the augmenter makes the loader's images") {
  const auto augmenter = MakeAugmenter(spec_);
  graph::ImageScratch scratch;
  std::vector<uint8_t> stored(data::kCifarPixels);
  std::vector<float> image(data::kCifarPixels);
  for (const BatchId& id : Plan(*loader_, {0, 1, 2})) {
    const Batch with_images = loader_->Load(id);
    const Batch with_pixels = pixels_->Load(id);
    REQUIRE((with_images.ok() && with_pixels.ok()));
    const ShardBatch& batch = **with_pixels;
    CHECK(batch.samples == (*with_images)->samples);
    CHECK(std::ranges::equal(LabelsOf(batch), LabelsOf(**with_images)));
    CHECK(batch.batch_samples == (*with_images)->batch_samples);
    CHECK(ImagesOf(batch).empty());
    CHECK((*with_images)->pixels.span().empty());
    CHECK(reinterpret_cast<uintptr_t>(batch.pixels.span().data()) % 64 == 0);
    REQUIRE(batch.pixels.span().size() == batch.samples.size() * data::kCifarPixels);
    const bool test = id.set == job::SampleSet::kTest;
    for (size_t row = 0; row < batch.samples.size(); ++row) {
      const auto pixels = batch.pixels.span().subspan(row * data::kCifarPixels, data::kCifarPixels);
      const auto split = test ? data::Split::kTest : data::Split::kTrain;
      REQUIRE(testing::ReadImage(*dataset_, split, batch.samples[row], stored).ok());
      CHECK(std::ranges::equal(pixels, stored));
      augmenter->Apply(id.use(), id.step, batch.samples[row], pixels, &scratch, image);
      CHECK(std::ranges::equal(
          image, ImagesOf(**with_images).subspan(row * data::kCifarPixels, data::kCifarPixels)));
    }
  }
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: images of a shard are mixed, of training alone") {
  v1::ResultSpec mixing = spec_;
  mixing.set_batch(10);
  mixing.set_steps_per_epoch(1);
  mixing.set_total_steps(4);
  const ShardLoader whole(dataset_, mixing, MakeAugmenter(mixing));
  CHECK(CoresMayAugment(mixing));
  CHECK_FALSE(MixesLabels(mixing));
  mixing.add_augment()->mutable_mixup()->set_alpha(1);
  mixing.mutable_augment()->rbegin()->mutable_mixup()->set_probability(1);
  CHECK_FALSE(CoresMayAugment(mixing));
  CHECK(MixesLabels(mixing));
  const ShardLoader mixed(dataset_, mixing, MakeAugmenter(mixing));
  std::set<float> shares;
  for (const BatchId& id : Plan(mixed, {0, 1, 2})) {
    const auto got = mixed.Load(id), expected = whole.Load(id);
    REQUIRE((got.ok() && expected.ok()));
    CHECK((*expected)->share == 1);
    CHECK(std::ranges::equal(LabelsOf(**got), LabelsOf(**expected)));
    const std::span<const float> images = ImagesOf(**got), own = ImagesOf(**expected);
    const float share = (*got)->share;
    if (id.set == job::SampleSet::kTest) {
      CHECK(share == 1);
      CHECK(std::ranges::equal(images, own));
      continue;
    }
    shares.insert(share);
    for (size_t i = 0; i < own.size(); ++i) {
      REQUIRE(images[i] ==
              own[i] * share + own[(i + data::kCifarPixels) % own.size()] * (1 - share));
    }
  }
  CHECK(shares.size() == 12);
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: a shard that the job does not have is refused") {
  CHECK(Message(loader_->Load(BatchId::Training(0, 3)).status()) ==
        "shard 3 of a job with 3 shards");
}

TEST_CASE_METHOD(ReaderFixture, "Reader: a whole job's batches are those of the loader") {
  for (const std::vector<uint32_t>& shards :
       {std::vector<uint32_t>{0, 1, 2}, std::vector<uint32_t>{1}}) {
    for (const size_t ahead : {1, 0, 100}) {
      Reader reader(loader_, {.shards = shards, .start_step = 0, .ahead = ahead});
      for (const BatchId& id : Plan(*loader_, shards)) {
        const Batch batch = reader.Get(id, Soon());
        REQUIRE(batch.ok());
        CHECK(SameContent(**batch, **loader_->Load(id)));
      }
    }
  }
}

TEST_CASE_METHOD(ReaderFixture, "Reader: cores that ask out of order get the same batches") {
  const std::vector<BatchId> plan = Plan(*loader_, {0, 1, 2});
  Reader reader(loader_, {.shards = {0, 1, 2}, .start_step = 0, .ahead = 2});
  constexpr size_t kCores = 3;
  std::vector<std::vector<Batch>> got(kCores);
  {
    std::vector<std::jthread> cores;
    for (size_t core = 0; core < kCores; ++core) {
      cores.emplace_back([&, core] {
        for (size_t i = core; i < plan.size(); i += kCores) {
          got[core].push_back(reader.Get(plan[i], Soon()));
        }
      });
    }
  }
  for (size_t core = 0; core < kCores; ++core) {
    for (size_t i = 0; i < got[core].size(); ++i) {
      REQUIRE(got[core][i].ok());
      CHECK(SameContent(**got[core][i], **loader_->Load(plan[core + i * kCores])));
    }
  }
}

TEST_CASE_METHOD(ReaderFixture, "Reader: any order of requests is served, even a senseless one") {
  const std::vector<BatchId> plan = Plan(*loader_, {0, 1, 2});
  Reader reader(loader_, {.shards = {0, 1, 2}, .start_step = 4, .ahead = 2});
  for (size_t i = 0; i < plan.size(); ++i) {
    const BatchId& id = plan[(i * 17 + 5) % plan.size()];
    const Batch batch = reader.Get(id, Soon());
    REQUIRE(batch.ok());
    CHECK(SameContent(**batch, **loader_->Load(id)));
  }
}

TEST_CASE_METHOD(ReaderFixture, "Reader: works ahead as far as it is allowed, and no further") {
  constexpr size_t kAhead = 4;
  Reader reader(loader_, {.shards = {0, 2}, .start_step = 1, .ahead = kAhead});
  const std::vector<BatchId> next = {BatchId::Training(1, 0), BatchId::Training(1, 2),
                                     BatchId::Training(2, 0), BatchId::Training(2, 2)};
  std::vector<std::shared_ptr<const ShardBatch>> expected;
  for (const BatchId& id : next) expected.push_back(*loader_->Load(id));
  for (const auto deadline = Soon(); reader.held() < kAhead;) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
  // The files are gone: what comes now was read before.
  for (int i = 1; i <= 5; ++i) {
    std::filesystem::resize_file(folder_ / ("d/data_batch_" + std::to_string(i) + ".bin"), 0);
  }
  for (size_t i = 0; i < next.size(); ++i) {
    CHECK(reader.held() <= kAhead);
    const Batch batch = reader.Get(next[i], Soon());
    REQUIRE(batch.ok());
    CHECK(SameContent(**batch, *expected[i]));
  }
}

TEST_CASE_METHOD(ReaderFixture, "Reader: images do not depend on its maker's float mode") {
  const BatchId id = BatchId::Training(0, 0);
  const Batch expected = loader_->Load(id);
  REQUIRE(expected.ok());
  const unsigned former = _mm_getcsr();
  _mm_setcsr(former | 0xe040);  // towards zero, subnormals flushed; new threads inherit it
  Reader reader(loader_, {.shards = {0}, .start_step = 0, .ahead = 1});
  const Batch other = loader_->Load(id);
  _mm_setcsr(former);
  REQUIRE(other.ok());
  REQUIRE_FALSE(SameContent(**other, **expected));  // the mode does matter
  for (const auto deadline = Soon(); reader.held() < 1;) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
  const Batch batch = reader.Get(id, Soon());
  REQUIRE(batch.ok());
  CHECK(SameContent(**batch, **expected));
}

// Waits until `done`; the reader's thread has nothing that a test could wait for.
template <typename Done>
void WaitUntil(const Done& done) {
  for (const auto deadline = Soon(); !done();) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
}

std::span<const uint8_t> PixelsOf(const StagedInput& staged) {
  return dynamic_cast<const FakeStagedInput&>(staged).pixels();
}

TEST_CASE_METHOD(ReaderFixture, "Reader: the stage has what comes next, as far as its slots go") {
  FakeInputStage stage({.slots = 2, .slot_bytes = 2 * data::kCifarPixels});
  Reader reader(pixels_, {.shards = {0, 2}, .start_step = 0, .ahead = 4, .stage = &stage});
  const std::vector<BatchId> plan = Plan(*pixels_, {0, 2});
  WaitUntil([&] { return reader.held() == 4 && stage.taken() == 2; });
  Batch before = reader.Get(plan[0], Soon());
  REQUIRE(before.ok());
  for (size_t i = 1; i < 4; ++i) {
    // The one in hand has a slot, and so has the next; the others wait for theirs.
    REQUIRE((*before)->staged != nullptr);
    CHECK(std::ranges::equal(PixelsOf(*(*before)->staged), (*before)->pixels.span()));
    CHECK(stage.taken() == 2);
    CHECK(stage.brought() == i + 1);
    before = absl::UnknownError("done with it");
    const Batch next = reader.Get(plan[i], Soon());
    REQUIRE(next.ok());
    CHECK(SameContent(**next, **pixels_->Load(plan[i])));
    WaitUntil([&] { return stage.taken() == 2; });
    before = next;
  }
}

TEST_CASE_METHOD(ReaderFixture, "Reader: whatever is staged, a whole job's batches stay the same") {
  for (const size_t slots : {0, 1, 3, 100}) {
    FakeInputStage stage({.slots = slots, .slot_bytes = 2 * data::kCifarPixels});
    {
      Reader reader(pixels_, {.shards = {0, 1, 2}, .start_step = 0, .stage = &stage});
      WaitUntil([&] { return reader.held() == 6 && stage.taken() == std::min<size_t>(slots, 6); });
      std::vector<Batch> in_hand;
      for (const BatchId& id : Plan(*pixels_, {0, 1, 2})) {
        const Batch batch = reader.Get(id, Soon());
        REQUIRE(batch.ok());
        CHECK(SameContent(**batch, **pixels_->Load(id)));
        const bool staged = (*batch)->staged != nullptr;
        if (staged) {
          CHECK(std::ranges::equal(PixelsOf(*(*batch)->staged), (*batch)->pixels.span()));
        }
        CHECK_FALSE((staged && (*batch)->samples.empty()));
        in_hand.push_back(batch);
        if (in_hand.size() > 2) in_hand.erase(in_hand.begin());
      }
      CHECK(stage.most() <= slots);
      CHECK(stage.brought() >= std::min<size_t>(slots, 6));
    }
    CHECK(stage.taken() == 0);
  }
}

TEST_CASE_METHOD(ReaderFixture, "Reader: what is passed over gives its slot back") {
  FakeInputStage stage({.slots = 3, .slot_bytes = 2 * data::kCifarPixels});
  Reader reader(pixels_, {.shards = {0, 1, 2}, .start_step = 0, .stage = &stage});
  WaitUntil([&] { return stage.taken() == 3; });
  const Batch last = reader.Get(BatchId::Training(5, 1), Soon());
  REQUIRE(last.ok());
  // Those of later steps come into the same slots.
  WaitUntil([&] { return stage.brought() >= 6; });
  CHECK(stage.most() <= 3);
  const Batch next = reader.Get(BatchId::Training(6, 0), Soon());
  REQUIRE(next.ok());
  CHECK(SameContent(**next, **pixels_->Load(BatchId::Training(6, 0))));
}

TEST_CASE_METHOD(ReaderFixture, "Reader: images are not brought ahead") {
  FakeInputStage stage({.slots = 3, .slot_bytes = size_t{1} << 30});
  Reader reader(loader_, {.shards = {0, 1, 2}, .start_step = 0, .stage = &stage});
  WaitUntil([&] { return reader.held() == 6; });
  for (const BatchId& id : Plan(*loader_, {0, 1, 2})) {
    const Batch batch = reader.Get(id, Soon());
    REQUIRE(batch.ok());
    CHECK((*batch)->staged == nullptr);
  }
  CHECK(stage.brought() == 0);
}

TEST_CASE_METHOD(ReaderFixture,
                 "Reader: an error of the stage comes out at the batch that has it") {
  FakeInputStage stage({.slots = 3, .slot_bytes = 10});
  Reader reader(pixels_, {.shards = {2}, .start_step = 0, .ahead = 1, .stage = &stage});
  WaitUntil([&] { return stage.refused() == 1; });
  CHECK(Message(reader.Get(BatchId::Training(0, 2), Soon()).status()) ==
        "input copied ahead: 6144 bytes for a slot of 10");
}

TEST_CASE_METHOD(ReaderFixture, "Reader: a batch that a caller took is not read again") {
  Reader reader(loader_, {.shards = {0}, .start_step = 0, .ahead = 2});
  // Whoever loads each of them, the reader comes to the end of the job and holds nothing.
  for (const BatchId& id : Plan(*loader_, {0})) REQUIRE(reader.Get(id, Soon()).ok());
  CHECK(reader.held() == 0);
}

TEST_CASE_METHOD(ReaderFixture, "Reader: after Stop every request is cancelled") {
  Reader reader(loader_, {.shards = {0}, .start_step = 0, .ahead = 1});
  REQUIRE(reader.Get(BatchId::Training(0, 0), Soon()).ok());
  reader.Stop();
  reader.Stop();
  CHECK(reader.Get(BatchId::Training(1, 0), Soon()).status().code() ==
        absl::StatusCode::kCancelled);
}

TEST_CASE_METHOD(ReaderFixture, "Reader: an error of the data comes out at the batch that has it") {
  Reader reader(loader_, {.shards = {0, 1, 2}, .start_step = 0, .ahead = 1});
  REQUIRE(reader.Get(BatchId::Training(0, 0), Soon()).ok());
  for (int i = 1; i <= 5; ++i) {
    std::filesystem::resize_file(folder_ / ("d/data_batch_" + std::to_string(i) + ".bin"), 0);
  }
  const Batch batch = reader.Get(BatchId::Training(5, 2), Soon());
  CHECK(batch.status().code() == absl::StatusCode::kDataLoss);
  CHECK(FailureOf(batch.status()) == v1::FAILURE_CODE_DATASET);
}

TEST_CASE_METHOD(ReaderFixture,
                 "Shard loader: validation samples are set aside, in one fixed order") {
  const auto loader = WithValidation();
  const auto samples_of = [&](const BatchId& id) { return (*loader->Load(id))->samples; };
  std::vector<uint64_t> validation;
  for (uint64_t batch = 0; batch < loader->evaluation_batches(job::SampleSet::kValidation);
       ++batch) {
    for (uint32_t shard = 0; shard < 3; ++shard) {
      const auto id = BatchId::Evaluation(2, job::SampleSet::kValidation, batch, shard);
      const auto later = BatchId::Evaluation(4, job::SampleSet::kValidation, batch, shard);
      REQUIRE(loader->Load(id).ok());
      CHECK(std::ranges::equal(ImagesOf(**loader->Load(id)), ImagesOf(**loader->Load(later))));
      for (const uint64_t sample : samples_of(id)) validation.push_back(sample);
    }
  }
  CHECK(validation.size() == 4);
  for (const uint64_t epoch : {0, 1}) {
    std::multiset<uint64_t> seen(validation.begin(), validation.end());
    for (uint64_t step = 2 * epoch; step < 2 * epoch + 2; ++step) {
      for (uint32_t shard = 0; shard < 3; ++shard) {
        const auto samples = samples_of(BatchId::Training(step, shard));
        seen.insert(samples.begin(), samples.end());
      }
    }
    CHECK(seen == std::multiset<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  CHECK(loader_->evaluation_batches(job::SampleSet::kValidation) == 0);
  CHECK_FALSE(loader_->Load(BatchId::Evaluation(3, job::SampleSet::kValidation, 0, 0)).ok());
}

TEST_CASE_METHOD(ReaderFixture,
                 "Reader: after an epoch the validation set, the test set, the next step") {
  const auto loader = WithValidation();
  const std::vector<uint32_t> shards = {0, 2};
  const std::vector<BatchId> plan = Plan(*loader, shards);
  // Steps 0 and 1, two batches of each set, steps 2 and 3, two batches of each set; two shards.
  REQUIRE(plan.size() == 2 * (2 + 4 + 2 + 4));
  CHECK(plan[4] == BatchId::Evaluation(2, job::SampleSet::kValidation, 0, 0));
  CHECK(plan[11] == BatchId::Evaluation(2, job::SampleSet::kTest, 1, 2));
  CHECK(plan[12] == BatchId::Training(2, 0));
  std::vector<std::shared_ptr<const ShardBatch>> expected;
  for (const BatchId& id : plan) expected.push_back(*loader->Load(id));
  Reader reader(loader, {.shards = shards, .start_step = 0, .ahead = 18});
  for (const auto deadline = Soon(); reader.held() < 18;) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
  // The files are gone: what comes now was read before, so these were the first of the plan.
  TruncateFiles();
  for (size_t i = 0; i < 18; ++i) {
    const Batch batch = reader.Get(plan[i], Soon());
    REQUIRE(batch.ok());
    CHECK(SameContent(**batch, *expected[i]));
  }
}

TEST_CASE_METHOD(ReaderFixture, "Shard loader: images have the model's shape, not the stored one") {
  v1::ResultSpec spec = spec_;
  spec.clear_augment();
  testing::SetColumns(48, 16, 3, &spec);
  const ShardLoader loader(dataset_, spec, MakeAugmenter(spec));
  const Batch batch = loader.Load(BatchId::Training(1, 2));
  REQUIRE(batch.ok());
  const size_t elements = size_t{48} * 16 * 3;
  REQUIRE(ImagesOf(**batch).size() == (*batch)->samples.size() * elements);
  std::vector<uint8_t> pixels(data::kCifarPixels);
  std::vector<float> resized(elements), rows;
  const graph::BilinearResize resize({32, 32, 3}, {48, 16, 3});
  for (size_t row = 0; row < (*batch)->samples.size(); ++row) {
    REQUIRE(
        testing::ReadImage(*dataset_, data::Split::kTrain, (*batch)->samples[row], pixels).ok());
    resize.Apply(pixels, &rows, resized);
    for (float& x : resized) x /= 255.0F;
    CHECK(std::ranges::equal(ImagesOf(**batch).subspan(row * elements, elements), resized));
  }
}

TEST_CASE("Shard loader: grey images become images of three channels") {
  const TemporaryFolder folder;
  REQUIRE(data::MakeSampleData(folder / "d", {.format = "mnist", .train = 4, .test = 2}).ok());
  v1::DataSource source;
  source.set_format("mnist");
  source.set_path("d");
  const auto dataset = Dataset::Open({folder.path(), ""}, source);
  REQUIRE(dataset.ok());
  v1::ResultSpec spec;
  *spec.mutable_data() = (*dataset)->facts();
  spec.mutable_data_use()->set_train_samples(4);
  spec.mutable_data_use()->set_test_samples(2);
  testing::SetColumns(28, 28, 3, &spec);
  spec.set_batch(4);
  spec.set_shards(1);
  spec.set_steps_per_epoch(1);
  spec.set_evaluation_steps(1);
  spec.set_total_steps(1);
  const Batch batch =
      ShardLoader(*dataset, spec, MakeAugmenter(spec)).Load(BatchId::Training(0, 0));
  REQUIRE(batch.ok());
  const std::span<const float> images = ImagesOf(**batch);
  REQUIRE(images.size() == size_t{4} * 784 * 3);
  std::vector<uint8_t> pixels(784);
  for (size_t row = 0; row < 4; ++row) {
    const auto label =
        testing::ReadImage(**dataset, data::Split::kTrain, (*batch)->samples[row], pixels);
    REQUIRE(label.ok());
    CHECK(LabelsOf(**batch)[row] == *label);
    for (size_t i = 0; i < size_t{784} * 3; ++i) {
      REQUIRE(images[row * 784 * 3 + i] == static_cast<float>(pixels[i / 3]) / 255.0F);
    }
  }
}

}  // namespace
}  // namespace ringmaster::worker
