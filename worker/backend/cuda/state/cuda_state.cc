#include "worker/backend/cuda/state/cuda_state.h"

#include <bit>
#include <utility>
#include <vector>

#include "common/exact/units.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::cuda {
namespace {

using exact::kBlockElements;
using graph::DType;

Status CheckOptions(const DeviceStateOptions& options) {
  if (options.precision_bits < 8 || options.precision_bits > 24 || options.shards < 1) {
    return InvalidArgument(
        "state on a GPU: expected precision_bits from 8 to 24 and at least one shard, got {} and "
        "{}",
        options.precision_bits, options.shards);
  }
  return absl::OkStatus();
}

// A power of two from 2^-126 to 2^64, as exact::QuantizeAdd wants it.
bool ValidScale(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  return (bits & 0x7fffff) == 0 && bits >> 23 >= 1 && bits >> 23 <= 127 + 64;
}

}  // namespace

CudaState::CudaState(DeviceWeights& weights, const DeviceStateOptions& options,
                     std::unique_ptr<graph::Optimizer> optimizer)
    : weights_(weights),
      layout_(*options.layout),
      optimizer_(std::move(optimizer)),
      slot_count_(optimizer_->slot_names().size()),
      shards_(options.shards),
      precision_bits_(options.precision_bits),
      bucket_elements_(options.bucket_elements),
      update_(layout_, *optimizer_, precision_bits_) {}

StatusOr<std::unique_ptr<CudaState>> CudaState::Create(DeviceWeights& weights,
                                                       const DeviceStateOptions& options) {
  RING_RETURN_IF_ERROR(CheckOptions(options));
  RING_ASSIGN_OR_RETURN(auto optimizer, graph::MakeOptimizer(options.update));
  std::unique_ptr<CudaState> state(new CudaState(weights, options, std::move(optimizer)));
  RING_RETURN_IF_ERROR(
      Annotate(state->Open(), fmt::format("state on GPU {}: {} parameters", weights.device(),
                                          state->layout_.arena_elements())));
  weights.set_sums(&state->gradient_sums_);
  return state;
}

uint64_t CudaState::DeviceBytes(const DeviceStateOptions& options) {
  const exact::BlockLayout& layout = *options.layout;
  const auto optimizer = graph::MakeOptimizer(options.update);
  const uint64_t slots = optimizer.ok() ? (*optimizer)->slot_names().size() : 0;
  const uint64_t update = optimizer.ok() ? DeviceUpdate::DeviceBytes(layout, **optimizer) : 0;
  const uint64_t blocks = layout.block_count();
  const uint64_t element = 2 * sizeof(int64_t) + slots * sizeof(float);
  // Exponents, and the tables; what belongs to a tensor or is there once does not count.
  const uint64_t block = sizeof(int16_t) + 3 * sizeof(uint32_t);
  return layout.arena_elements() * element + blocks * block + update +
         DigestScratch(static_cast<int64_t>(blocks)) + 2 * SumTransfer::DeviceBytes(layout);
}

CudaState::~CudaState() {
  weights_.set_sums(nullptr);
  // A Clear may be on its way, from memory that goes.
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_.get());
}

Status CudaState::Open() {
  RING_RETURN_IF_ERROR(MakeCurrent());
  RING_ASSIGN_OR_RETURN(stream_, MakeStream());
  RING_ASSIGN_OR_RETURN(done_, MakeEvent());
  RING_ASSIGN_OR_RETURN(cleared_, MakeEvent());
  RING_ASSIGN_OR_RETURN(uploader_, Uploader::Create(stream_.get()));
  RING_ASSIGN_OR_RETURN(downloader_, Downloader::Create(stream_.get()));
  RING_RETURN_IF_ERROR(MakeArrays());
  RING_RETURN_IF_ERROR(FillTables());
  RING_RETURN_IF_ERROR(update_.Open(*uploader_, stream_.get()));
  RING_ASSIGN_OR_RETURN(from_device_, SumTransfer::Create(layout_, tables_.counts.data()));
  RING_ASSIGN_OR_RETURN(to_device_, SumTransfer::Create(layout_, tables_.counts.data()));
  const std::vector<exact::Bucket> buckets = exact::CutBuckets(layout_, bucket_elements_);
  gradient_sums_ = {.layout = &layout_,
                    .shards = shards_,
                    .precision_bits = precision_bits_,
                    .sums = sums_.data(),
                    .exponents = exponents_.data(),
                    .gradient_scale = gradient_scale_.data(),
                    .cleared = cleared_.get(),
                    .bucket_of_tensor = exact::BucketsOfTensors(layout_, buckets)};
  return Wait();
}

Status CudaState::MakeArrays() {
  const size_t elements = layout_.arena_elements();
  const size_t blocks = layout_.block_count();
  RING_RETURN_IF_ERROR(sums_.Make(elements));
  RING_RETURN_IF_ERROR(totals_.Make(elements));
  for (size_t s = 0; s < slot_count_; ++s) RING_RETURN_IF_ERROR(slots_[s].Make(elements));
  RING_RETURN_IF_ERROR(exponents_.Make(blocks));
  RING_RETURN_IF_ERROR(gradient_scale_.Make(1));
  const size_t scratch = DigestScratch(static_cast<int64_t>(blocks));
  RING_RETURN_IF_ERROR(hash_scratch_.Make((scratch + 7) / sizeof(uint64_t)));
  RING_RETURN_IF_ERROR(results_.Make(2 * PlaceOf(Hashed::kWritten) - kHashes));
  return host_results_.Grow(results_.bytes());
}

Status CudaState::FillTables() {
  std::vector<uint32_t> counts, tensors, indices, first_blocks;
  for (const exact::Block& block : layout_.blocks()) {
    counts.push_back(block.count);
    tensors.push_back(block.tensor);
    indices.push_back(block.index);
  }
  for (const exact::TensorRange& tensor : layout_.tensors()) {
    first_blocks.push_back(static_cast<uint32_t>(tensor.first_block));
  }
  first_blocks.push_back(static_cast<uint32_t>(layout_.block_count()));
  for (const auto& [from, to] : {std::pair{&counts, &tables_.counts},
                                 {&tensors, &tables_.tensors},
                                 {&indices, &tables_.indices},
                                 {&first_blocks, &tables_.first_blocks}}) {
    RING_RETURN_IF_ERROR(to->Make(from->size()));
    RING_RETURN_IF_ERROR(Upload(*from, to->data()));
  }
  return absl::OkStatus();
}

Status CudaState::Upload(const auto& values, void* to) {
  return uploader_->Copy(std::data(values), to, std::size(values) * sizeof(*std::data(values)));
}

Status CudaState::MakeCurrent() const {
  return FromCuda(cudaSetDevice(weights_.device()),
                  fmt::format("state: GPU {}", weights_.device()));
}

Status CudaState::Wait() { return WaitFor(stream_.get(), done_.get(), "state"); }

Status CudaState::CheckLoaded() const {
  if (loaded_) return absl::OkStatus();
  return FailedPrecondition("state on a GPU: it holds nothing yet; Load comes first");
}

Status CudaState::CheckBucket(const exact::Bucket& bucket, size_t integers) const {
  const size_t blocks = layout_.block_count();
  if (bucket.block_count >= 1 && bucket.first_block < blocks &&
      bucket.block_count <= blocks - bucket.first_block &&
      integers == bucket.block_count * kBlockElements) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "state on a GPU: a bucket of {} blocks from block {} on with {} integers; expected 256 "
      "integers a block, and at most {} blocks",
      bucket.block_count, bucket.first_block, integers, blocks);
}

template <typename T>
Status CudaState::CheckSizes(std::span<T> parameters, std::span<const std::span<T>> slots,
                             size_t exponents) const {
  const size_t elements = layout_.arena_elements();
  bool right = parameters.size() == elements && slots.size() == slot_count_ &&
               exponents == layout_.block_count();
  for (const std::span<T> slot : slots) right = right && slot.size() == elements;
  if (right) return absl::OkStatus();
  return InvalidArgument(
      "state on a GPU: expected {} parameters, as many elements in each of {} slots, and {} "
      "exponents; got {} parameters, {} slots and {} exponents, or slots of another size",
      elements, slot_count_, layout_.block_count(), parameters.size(), slots.size(), exponents);
}

Status CudaState::Load(std::span<const float> parameters,
                       std::span<const std::span<const float>> slots,
                       std::span<const int16_t> exponents) {
  RING_RETURN_IF_ERROR(CheckSizes(parameters, slots, exponents.size()));
  RING_RETURN_IF_ERROR(exact::Units(&layout_, precision_bits_).Restore(exponents));
  RING_RETURN_IF_ERROR(MakeCurrent());
  loaded_ = false;
  RING_RETURN_IF_ERROR(weights_.StartFilling(layout_, parameters));
  for (size_t s = 0; s < slots.size(); ++s) {
    RING_RETURN_IF_ERROR(Upload(slots[s], slots_[s].data()));
  }
  RING_RETURN_IF_ERROR(Upload(exponents, exponents_.data()));
  RING_RETURN_IF_ERROR(sums_.Zero(stream_.get()));
  RING_RETURN_IF_ERROR(totals_.Zero(stream_.get()));
  RING_RETURN_IF_ERROR(weights_.FinishFilling());
  RING_RETURN_IF_ERROR(Wait());
  loaded_ = true;
  return absl::OkStatus();
}

Status CudaState::Store(std::span<float> parameters, std::span<const std::span<float>> slots,
                        std::span<int16_t> exponents) {
  RING_RETURN_IF_ERROR(CheckSizes(parameters, slots, exponents.size()));
  RING_RETURN_IF_ERROR(CheckLoaded());
  RING_RETURN_IF_ERROR(MakeCurrent());
  RING_RETURN_IF_ERROR(downloader_->Copy(weights_.arena(DType::kFloat32), parameters.data(),
                                         parameters.size_bytes()));
  for (size_t s = 0; s < slots.size(); ++s) {
    RING_RETURN_IF_ERROR(
        downloader_->Copy(slots_[s].data(), slots[s].data(), slots[s].size_bytes()));
  }
  return downloader_->Copy(exponents_.data(), exponents.data(), exponents.size_bytes());
}

Status CudaState::Clear(float gradient_scale) {
  if (!ValidScale(gradient_scale)) {
    return InvalidArgument(
        "state on a GPU: gradients are multiplied by {}; expected a power of two from 2^-126 to "
        "2^64",
        gradient_scale);
  }
  RING_RETURN_IF_ERROR(CheckLoaded());
  RING_RETURN_IF_ERROR(MakeCurrent());
  RING_RETURN_IF_ERROR(sums_.Zero(stream_.get()));
  RING_RETURN_IF_ERROR(Upload(std::span(&gradient_scale, 1), gradient_scale_.data()));
  return FromCuda(cudaEventRecord(cleared_.get(), stream_.get()), "zeros");
}

Status CudaState::ReadSums(const exact::Bucket& bucket, std::span<int64_t> sums) {
  RING_RETURN_IF_ERROR(CheckBucket(bucket, sums.size()));
  RING_RETURN_IF_ERROR(MakeCurrent());
  return from_device_->Read(sums_.data(), bucket, sums, cleared_.get());
}

Status CudaState::WriteTotals(const exact::Bucket& bucket, std::span<const int64_t> totals) {
  RING_RETURN_IF_ERROR(CheckBucket(bucket, totals.size()));
  RING_RETURN_IF_ERROR(MakeCurrent());
  return to_device_->Write(totals, bucket, totals_.data());
}

int64_t* CudaState::Integers(SumSource source) const {
  return source == SumSource::kOwn ? sums_.data() : totals_.data();
}

StatusOr<int64_t*> CudaState::Integers(SumSource source, const exact::Bucket& bucket) const {
  RING_RETURN_IF_ERROR(CheckBucket(bucket, bucket.block_count * kBlockElements));
  if (source == SumSource::kOwn) RING_RETURN_IF_ERROR(Await(cleared_.get(), "zeros"));
  return Integers(source) + bucket.first_block * kBlockElements;
}

StatusOr<StepHashes> CudaState::Apply(SumSource source, uint64_t update) {
  RING_RETURN_IF_ERROR(StartApply(source, update));
  return Finish();
}

StatusOr<StepHashes> CudaState::Skip(SumSource source) {
  RING_RETURN_IF_ERROR(StartSkip(source));
  return Finish();
}

Status CudaState::StartApply(SumSource source, uint64_t update) {
  RING_RETURN_IF_ERROR(StartChange());
  RING_RETURN_IF_ERROR(StartUpdate(source, update));
  return EndChange(source);
}

Status CudaState::StartSkip(SumSource source) {
  RING_RETURN_IF_ERROR(StartChange());
  RING_RETURN_IF_ERROR(
      FromCuda(LaunchResetExponents(static_cast<int64_t>(layout_.block_count()), precision_bits_,
                                    exponents_.data(), stream_.get()),
               "exponents of a skipped step"));
  return EndChange(source);
}

StatusOr<StepHashes> CudaState::Finish() {
  RING_RETURN_IF_ERROR(MakeCurrent());
  RING_RETURN_IF_ERROR(Wait());
  return StepHashes{.totals = SumAt(kDigest),
                    .read = HashesOf(Hashed::kRead),
                    .written = HashesOf(Hashed::kWritten)};
}

exact::BlockSum CudaState::SumAt(size_t word) const {
  const auto* const halves = reinterpret_cast<const uint64_t*>(host_results_.data()) + word;
  return exact::BlockSum::OfHalves(halves[0], halves[1]);
}

DeviceHashes CudaState::HashesOf(Hashed hashed) const {
  const size_t place = PlaceOf(hashed);
  const size_t parts = slot_count_ + 1;
  DeviceHashes hashes;
  for (size_t part = 0; part < parts; ++part) {
    hashes.trained.push_back(SumAt(place + 2 * part));
  }
  hashes.exponents = SumAt(place + 2 * parts);
  const auto* const finite = reinterpret_cast<const uint64_t*>(host_results_.data());
  hashes.finite = finite[static_cast<size_t>(hashed)] != 0;
  return hashes;
}

Status CudaState::StartChange() {
  RING_RETURN_IF_ERROR(CheckLoaded());
  RING_RETURN_IF_ERROR(MakeCurrent());
  // Both are finite until a value is not.
  RING_RETURN_IF_ERROR(FromCuda(
      cudaMemsetAsync(results_.data(), 0xff, kDigest * sizeof(uint64_t), stream_.get()), "hashes"));
  return StartHashes(Hashed::kRead);
}

// One part after the other through the same scratch.
Status CudaState::StartHashes(Hashed hashed) {
  const auto blocks = static_cast<int64_t>(layout_.block_count());
  const size_t parts = slot_count_ + 1;
  uint64_t* const finite = results_.data() + static_cast<size_t>(hashed);
  uint64_t* const hashes = results_.data() + PlaceOf(hashed);
  for (size_t part = 0; part < parts; ++part) {
    const float* const values = part == 0
                                    ? static_cast<const float*>(weights_.arena(DType::kFloat32))
                                    : slots_[part - 1].data();
    RING_RETURN_IF_ERROR(FromCuda(
        LaunchWordHash(names(), exact::NameOfPart(exact::TrainedPart(part), 0), values, blocks,
                       hash_scratch_.data(), hashes + 2 * part, finite, stream_.get()),
        "hashes"));
  }
  return FromCuda(LaunchExponentHash(names(), exponents_.data(), blocks, hash_scratch_.data(),
                                     hashes + 2 * parts, stream_.get()),
                  "hashes");
}

Status CudaState::StartUpdate(SumSource source, uint64_t update) {
  UpdateArrays arrays{.totals = Integers(source),
                      .counts = tables_.counts.data(),
                      .exponents = exponents_.data(),
                      .parameters = static_cast<float*>(weights_.arena(DType::kFloat32)),
                      .bfloat16 = static_cast<__nv_bfloat16*>(weights_.arena(DType::kBFloat16)),
                      .float16 = static_cast<__half*>(weights_.arena(DType::kFloat16)),
                      .tensors = tables_.tensors.data()};
  const size_t slots = slot_count_ - (optimizer_->averages() ? 1 : 0);
  for (size_t s = 0; s < slots; ++s) arrays.slots[s] = slots_[s].data();
  if (optimizer_->averages()) arrays.average = slots_[slots].data();
  RING_RETURN_IF_ERROR(update_.Start(arrays, update, stream_.get()));
  const TensorBlocks tensors{.count = static_cast<int64_t>(layout_.tensors().size()),
                             .first_blocks = tables_.first_blocks.data()};
  return FromCuda(LaunchClampExponents(tensors, precision_bits_, exponents_.data(), stream_.get()),
                  fmt::format("exponents of update {}", update));
}

Status CudaState::EndChange(SumSource source) {
  RING_RETURN_IF_ERROR(
      FromCuda(LaunchDigest(names(), Integers(source), static_cast<int64_t>(layout_.block_count()),
                            hash_scratch_.data(), results_.data() + kDigest, stream_.get()),
               "digest"));
  RING_RETURN_IF_ERROR(StartHashes(Hashed::kWritten));
  return FromCuda(cudaMemcpyAsync(host_results_.data(), results_.data(), results_.bytes(),
                                  cudaMemcpyDeviceToHost, stream_.get()),
                  "hashes");
}

}  // namespace ringmaster::cuda
