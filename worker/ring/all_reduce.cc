#include "worker/ring/all_reduce.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/failpoint.h"
#include "worker/ring/segments.h"

namespace ringmaster::ring {
namespace {

// Of the buffers that come back from the transport: about what the skewed order has under way.
constexpr size_t kSpareBuffers = 8;

FrameHeader HeaderOf(const Context& context, const Turn& turn, Phase phase) {
  return {.job = context.job,
          .generation = context.generation,
          .step = context.step,
          .purpose = context.purpose,
          .phase = phase,
          .bucket = context.bucket,
          .chunk = turn.chunk,
          .segment = turn.segment};
}

Phase ReceivedPhase(Action action) {
  return action == Action::kAdd || action == Action::kTotal ? Phase::kReduceScatter
                                                            : Phase::kAllGather;
}

Phase SentPhase(Action action) {
  return action == Action::kStart || action == Action::kAdd ? Phase::kReduceScatter
                                                            : Phase::kAllGather;
}

// The failpoints of a step, in its bucket 0: each after the first turn of its phase, when a
// neighbour has, or waits for, some of the frames. A member without a turn in the reduce-scatter (a
// bucket of fewer blocks than members) is at both after its first turn.
class PhasePoints {
 public:
  explicit PhasePoints(const Context& context)
      : step_(context.step), left_(context.purpose == Purpose::kStep && context.bucket == 0) {}

  void Done(Action action) {
    if (!left_) return;
    if (!std::exchange(reduced_, true)) HitFailpoint("reduce_scatter", step_);
    if (SentPhase(action) == Phase::kReduceScatter) return;
    HitFailpoint("all_gather", step_);
    left_ = false;
  }

 private:
  const uint64_t step_;
  bool left_;
  bool reduced_ = false;
};

template <typename T>
void CheckSpans(std::span<const exact::Block> blocks, std::span<const T> own, std::span<T> totals) {
  const size_t elements = blocks.size() * exact::kBlockElements;
  RING_CHECK(own.size() == elements && totals.size() == elements, "256 elements a block");
}

template <typename T>
void CopyBlocks(std::span<const exact::Block> blocks, std::span<const T> own, std::span<T> totals) {
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::copy_n(own.begin() + b * exact::kBlockElements, blocks[b].count,
                totals.begin() + b * exact::kBlockElements);
  }
}

size_t SegmentBlocks(const ReduceOptions& options) {
  return options.segment_elements / exact::kBlockElements;
}

}  // namespace

AllReduce::AllReduce(Link* link, Position position, ReduceOptions options)
    : link_(link),
      position_(position),
      options_(options),
      pool_(LargestPayload(options), kSpareBuffers) {
  RING_CHECK(options.segment_elements % exact::kBlockElements == 0 && options.segment_elements > 0,
             "segments are whole blocks");
  RING_CHECK(position.size == 1 || link != nullptr, "a ring of several members needs a link");
}

size_t AllReduce::LargestPayload(const ReduceOptions& options) {
  // float32 takes half of what the widest integers do.
  return ExactSegments::PayloadLimit(SegmentBlocks(options));
}

Status AllReduce::Exact(const Context& context, std::span<const exact::Block> blocks,
                        std::span<const int64_t> own, std::span<int64_t> totals) {
  CheckSpans(blocks, own, totals);
  if (position_.size == 1) {
    CopyBlocks(blocks, own, totals);
    return absl::OkStatus();
  }
  ExactSegments segments(blocks, own, totals, &pool_);
  return Run(context, blocks.size(), &segments);
}

Status AllReduce::Float32(const Context& context, std::span<const exact::Block> blocks,
                          std::span<const float> own, std::span<float> totals) {
  CheckSpans(blocks, own, totals);
  if (position_.size == 1) {
    CopyBlocks(blocks, own, totals);
    return absl::OkStatus();
  }
  Float32Segments segments(blocks, own, totals, &pool_);
  return Run(context, blocks.size(), &segments);
}

Status AllReduce::Run(const Context& context, size_t blocks, Segments* segments) {
  PhasePoints points(context);
  for (const Turn& turn : MakeSchedule(blocks, position_, SegmentBlocks(options_), kWindowFrames)) {
    Status status = Do(context, turn, segments);
    if (!status.ok()) {
      link_->Cancel(status);
      return status;
    }
    points.Done(turn.action);
  }
  return absl::OkStatus();
}

Status AllReduce::Do(const Context& context, const Turn& turn, Segments* segments) {
  const FrameHeader header = HeaderOf(context, turn, SentPhase(turn.action));
  if (turn.action == Action::kStart) return Send(header, segments->Pack(turn));

  RING_ASSIGN_OR_RETURN(const Frame frame, Receive());
  RING_RETURN_IF_ERROR(
      CheckExpected(frame.header, HeaderOf(context, turn, ReceivedPhase(turn.action))));
  switch (turn.action) {
    case Action::kAdd: {
      RING_ASSIGN_OR_RETURN(const Payload sum, segments->Add(turn, frame.payload));
      return Send(header, sum);
    }
    case Action::kTotal: {
      RING_ASSIGN_OR_RETURN(const Payload sum, segments->Total(turn, frame.payload));
      return Send(header, sum);
    }
    default: {
      // Sent on first: the successor waits for it, and nothing in it changes.
      if (Sends(turn.action)) {
        RING_RETURN_IF_ERROR(link_->Send(frame.header, frame.payload, Deadline()));
      }
      return segments->Keep(turn, frame.payload);
    }
  }
}

Status AllReduce::Send(const FrameHeader& header, const Payload& payload) {
  return link_->Send(Sealed(header, payload), payload, Deadline());
}

StatusOr<Frame> AllReduce::Receive() {
  const auto begin = std::chrono::steady_clock::now();
  StatusOr<Frame> frame = link_->Receive(begin + options_.progress_limit);
  waits_.Add(begin, std::chrono::steady_clock::now());
  return frame;
}

std::chrono::steady_clock::time_point AllReduce::Deadline() const {
  return std::chrono::steady_clock::now() + options_.progress_limit;
}

}  // namespace ringmaster::ring
