#include "worker/ring/all_reduce.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "common/failpoint.h"
#include "worker/ring/segments.h"

namespace ringmaster::ring {
namespace {

// Of the buffers that come back from the transport: about what is under way at once.
constexpr size_t kSpareBuffers = 16;

// Own segments that are under way at once, and buckets that they are of: enough that every member
// has work while the others have, and few enough that sums are sent on from cache and that a member
// that is late holds little (docs/ring.md).
constexpr uint32_t kSegmentsOut = 16;
constexpr uint32_t kBucketsOut = 4;
static_assert(kSegmentsOut < kWindowFrames, "else a ring of senders could hang");

// What a ring of one does.
void CopyBlocks(std::span<const exact::Block> blocks, const OwnSums& own, const TotalSums& totals) {
  std::array<int64_t, exact::kBlockElements> side;
  for (size_t b = 0; b < blocks.size(); ++b) {
    totals.Write(b, own.Read(b, blocks[b].count, side.data()));
  }
}

void CopyBlocks(std::span<const exact::Block> blocks, std::span<const float> own,
                std::span<float> totals) {
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::copy_n(own.begin() + b * exact::kBlockElements, blocks[b].count,
                totals.begin() + b * exact::kBlockElements);
  }
}

size_t SegmentBlocks(const ReduceOptions& options) {
  return options.segment_elements / exact::kBlockElements;
}

// Of a bucket of `blocks`: four segments of a chunk, so that hops overlap, where that leaves enough
// for a frame.
constexpr size_t kLeastSegmentBlocks = 128;
size_t SegmentBlocks(const ReduceOptions& options, size_t blocks, uint32_t members) {
  const size_t chunk = (blocks + members - 1) / members;
  return std::min(SegmentBlocks(options), std::max(kLeastSegmentBlocks, (chunk + 3) / 4));
}

}  // namespace

AllReduce::AllReduce(Link* link, Position position, ReduceOptions options)
    : link_(link),
      position_(position),
      options_(options),
      pool_(LargestPayload(options), kSpareBuffers,
            [link](size_t bytes) { return link != nullptr ? link->Lend(bytes) : nullptr; }) {
  RING_CHECK(options.segment_elements % exact::kBlockElements == 0 && options.segment_elements > 0,
             "segments are whole blocks");
  RING_CHECK(position.size == 1 || link != nullptr, "a ring of several members needs a link");
}

size_t AllReduce::LargestPayload(const ReduceOptions& options) {
  // float32 takes half of what the widest integers do.
  return ExactSegments::PayloadLimit(SegmentBlocks(options));
}

void AllReduce::Begin(const Context& context) {
  round_ = context;
  SetUrgent(false);
  buckets_.clear();
  to_start_.clear();
  finished_.clear();
  unfinished_ = early_ = segments_out_ = buckets_out_ = 0;
  at_reduce_scatter_ = at_all_gather_ = context.purpose == Purpose::kStep;
}

Status AllReduce::AddExact(uint32_t bucket, std::span<const exact::Block> blocks,
                           const OwnSums& own, const TotalSums& totals) {
  RING_CHECK(own.Hold(blocks.size()) && totals.Hold(blocks.size()), "256 elements a block");
  if (position_.size == 1) CopyBlocks(blocks, own, totals);
  return Add(bucket, blocks.size(),
             std::make_unique<ExactSegments>(blocks, own, totals, *options_.kernels, &pool_));
}

Status AllReduce::AddFloat32(uint32_t bucket, std::span<const exact::Block> blocks,
                             std::span<const float> own, std::span<float> totals) {
  const size_t elements = blocks.size() * exact::kBlockElements;
  RING_CHECK(own.size() == elements && totals.size() == elements, "256 elements a block");
  if (position_.size == 1) CopyBlocks(blocks, own, totals);
  return Add(bucket, blocks.size(), std::make_unique<Float32Segments>(blocks, own, totals, &pool_));
}

Status AllReduce::Exact(const Context& context, std::span<const exact::Block> blocks,
                        std::span<const int64_t> own, std::span<int64_t> totals) {
  Begin(context);
  RING_RETURN_IF_ERROR(AddExact(context.bucket, blocks, own, totals));
  return Work(Until::kIdle);
}

Status AllReduce::Float32(const Context& context, std::span<const exact::Block> blocks,
                          std::span<const float> own, std::span<float> totals) {
  Begin(context);
  RING_RETURN_IF_ERROR(AddFloat32(context.bucket, blocks, own, totals));
  return Work(Until::kIdle);
}

Status AllReduce::Add(uint32_t index, size_t blocks, std::unique_ptr<Segments> segments) {
  Bucket& bucket = buckets_[index];
  RING_CHECK(!bucket.schedule && bucket.segments == nullptr, "a bucket is added once");
  if (position_.size == 1 || blocks == 0) {
    finished_.push_back(index);
    return absl::OkStatus();
  }
  bucket.schedule.emplace(blocks, position_, SegmentBlocks(options_, blocks, position_.size));
  bucket.segments = std::move(segments);
  bucket.left = bucket.schedule->receives();
  bucket.seen.resize(bucket.schedule->indices());
  ++unfinished_;
  if (bucket.schedule->starts() > 0) to_start_.push_back(index);

  early_ -= bucket.early.size();
  for (const Frame& frame : std::exchange(bucket.early, {})) {
    const Status status = Take(index, &bucket, frame);
    if (status.ok()) continue;
    link_->Cancel(status);
    return status;
  }
  return absl::OkStatus();
}

Status AllReduce::Work(Until until) {
  if (position_.size == 1) return absl::OkStatus();
  const Status status = Loop(until);
  if (!status.ok()) link_->Cancel(status);
  link_->Rest();
  return status;
}

Status AllReduce::Loop(Until until) {
  bool news = false;
  while (!idle() && (until != Until::kFinished || finished_.empty())) {
    // What has come goes first: others wait for it. Then what can be started; then news.
    RING_ASSIGN_OR_RETURN(Arrival arrival, link_->Await(kNoWait));
    if (arrival == Arrival::kNothing) {
      RING_ASSIGN_OR_RETURN(const bool started, StartOne());
      if (started) continue;
      if (news) break;
      RING_ASSIGN_OR_RETURN(arrival, Await());
    }
    if (arrival == Arrival::kFrame) {
      RING_ASSIGN_OR_RETURN(Frame frame, link_->Receive(kNoWait));
      RING_RETURN_IF_ERROR(Deal(std::move(frame)));
    } else {
      news = until == Until::kNews;
    }
  }
  return absl::OkStatus();
}

StatusOr<Arrival> AllReduce::Await() {
  const auto begin = std::chrono::steady_clock::now();
  const auto deadline = begin + options_.progress_limit;
  StatusOr<Arrival> arrival = link_->Await(deadline);
  waits_.Add(begin, std::chrono::steady_clock::now());
  if (!arrival.ok() || *arrival != Arrival::kNothing) return arrival;
  // Too late: Receive says for whom, but for a frame that comes at that moment.
  RING_ASSIGN_OR_RETURN(Frame frame, link_->Receive(deadline));
  RING_RETURN_IF_ERROR(Deal(std::move(frame)));
  return Arrival::kNudge;
}

StatusOr<bool> AllReduce::StartOne() {
  if (to_start_.empty() || segments_out_ == kSegmentsOut) return false;
  const uint32_t index = to_start_.front();
  const Bucket& bucket = buckets_.at(index);
  if (bucket.started == bucket.returned && buckets_out_ == kBucketsOut) return false;
  RING_RETURN_IF_ERROR(Start(index));
  return true;
}

Status AllReduce::Start(uint32_t index) {
  Bucket& bucket = buckets_.at(index);
  if (bucket.started == bucket.returned) ++buckets_out_;
  const Turn turn = bucket.schedule->Start(bucket.started++);
  if (bucket.started == bucket.schedule->starts()) std::erase(to_start_, index);
  ++segments_out_;
  RING_RETURN_IF_ERROR(Send(index, turn, bucket.segments->Pack(turn)));
  Done(index, turn.action);
  return absl::OkStatus();
}

Status AllReduce::Deal(Frame frame) {
  const uint32_t index = frame.header.bucket;
  FrameHeader expected = HeaderOf(index);
  expected.phase = frame.header.phase;
  expected.chunk = frame.header.chunk;
  expected.segment = frame.header.segment;
  RING_RETURN_IF_ERROR(CheckExpected(frame.header, expected));
  Bucket& bucket = buckets_[index];
  if (bucket.schedule) return Take(index, &bucket, frame);
  // No member has more under way, and all of the others' might be here.
  if (early_ >= size_t{kSegmentsOut} * (position_.size - 1)) {
    return FailedPrecondition(
        "frame bucket {}: {} frames wait already for this member's part of their buckets", index,
        early_);
  }
  ++early_;
  bucket.early.push_back(std::move(frame));
  return absl::OkStatus();
}

Status AllReduce::Take(uint32_t index, Bucket* bucket, const Frame& frame) {
  const FrameHeader& header = frame.header;
  RING_ASSIGN_OR_RETURN(const Turn turn,
                        bucket->schedule->Received(header.phase, header.chunk, header.segment));
  const size_t at = bucket->schedule->IndexOf(turn);
  if (bucket->seen[at]) {
    return FailedPrecondition(
        "frame of bucket {} phase {} chunk {} segment {}: expected once, it came again", index,
        static_cast<int>(header.phase), header.chunk, header.segment);
  }
  // Its way round began here.
  if (turn.chunk == position_.rank && turn.action != Action::kJoin &&
      turn.segment >= bucket->started) {
    return FailedPrecondition(
        "frame of bucket {} phase {} chunk {} segment {}: of {} segments that this member started",
        index, static_cast<int>(header.phase), header.chunk, header.segment, bucket->started);
  }
  bucket->seen[at] = true;
  // The total may go where the own part lies, which the other member needs as it is.
  if (turn.action == Action::kJoin && bucket->started == 0) RING_RETURN_IF_ERROR(Start(index));
  RING_RETURN_IF_ERROR(Do(index, turn, frame, bucket->segments.get()));
  Done(index, turn.action);

  // An own segment has come back, or the other's of an exchange.
  if (turn.chunk == position_.rank || turn.action == Action::kJoin) {
    ++bucket->returned;
    --segments_out_;
    if (bucket->returned == bucket->started) --buckets_out_;
  }
  if (--bucket->left == 0) {
    bucket->segments.reset();
    finished_.push_back(index);
    --unfinished_;
  }
  return absl::OkStatus();
}

Status AllReduce::Do(uint32_t index, const Turn& turn, const Frame& frame, Segments* segments) {
  switch (turn.action) {
    case Action::kAdd: {
      RING_ASSIGN_OR_RETURN(const Payload sum, segments->Add(turn, frame.payload));
      return Send(index, turn, sum);
    }
    case Action::kJoin:
      return segments->Total(turn, frame.payload).status();
    case Action::kTotal: {
      RING_ASSIGN_OR_RETURN(const Payload sum, segments->Total(turn, frame.payload));
      return Send(index, turn, sum);
    }
    default:
      // Sent on first: the successor waits for it, and nothing in it changes.
      if (turn.action == Action::kForward) {
        RING_RETURN_IF_ERROR(link_->Send(frame.header, frame.payload, Deadline()));
      }
      return segments->Keep(turn, frame.payload);
  }
}

Status AllReduce::Send(uint32_t bucket, const Turn& turn, const Payload& payload) {
  FrameHeader header = HeaderOf(bucket);
  header.phase = SentPhase(turn.action);
  header.chunk = turn.chunk;
  header.segment = turn.segment;
  return link_->Send(Sealed(header, payload), payload, Deadline());
}

// Each is hit after the first turn of its phase in bucket 0 of a step, when a neighbour has, or
// waits for, some of the frames. A member without a turn in the reduce-scatter (a bucket of fewer
// blocks than members) is at both after its first turn.
void AllReduce::Done(uint32_t bucket, Action action) {
  if (bucket != 0) return;
  if (std::exchange(at_reduce_scatter_, false)) HitFailpoint("reduce_scatter", round_.step);
  if (SentPhase(action) == Phase::kReduceScatter) return;
  if (std::exchange(at_all_gather_, false)) HitFailpoint("all_gather", round_.step);
}

FrameHeader AllReduce::HeaderOf(uint32_t bucket) const {
  return {.job = round_.job,
          .generation = round_.generation,
          .step = round_.step,
          .purpose = round_.purpose,
          .bucket = bucket};
}

std::chrono::steady_clock::time_point AllReduce::Deadline() const {
  return std::chrono::steady_clock::now() + options_.progress_limit;
}

}  // namespace ringmaster::ring
