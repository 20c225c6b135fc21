// What a predecessor can send round the ring: frames in any order, of any bucket and turn, also of
// buckets that this member adds later. Checksums are right; payloads are, where the choices say so,
// as long as their blocks ask for.
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "worker/ring/all_reduce.h"
#include "worker/ring/schedule.h"

namespace ringmaster::ring {
namespace {

constexpr uint32_t kBuckets = 2;
constexpr size_t kSegmentBlocks = 2;

struct Round {
  Position position;
  std::array<size_t, kBuckets> blocks = {};
  bool exact = false;
};

// Its frames come out of the input, and nothing behind its end.
class InputLink final : public Link {
 public:
  InputLink(fuzz::Input* input, const Round* round) : input_(*input), round_(*round) {}

  Status Send(const FrameHeader&, const Payload& payload,
              std::chrono::steady_clock::time_point) override {
    sent_ += payload.size();
    return absl::OkStatus();
  }
  StatusOr<Frame> Receive(std::chrono::steady_clock::time_point) override {
    if (input_.empty()) return absl::DeadlineExceededError("the input is over");
    Frame frame;
    const uint8_t choices = input_.Byte(), turn = input_.Byte();
    frame.header.phase = (choices & 1) != 0 ? Phase::kAllGather : Phase::kReduceScatter;
    frame.header.bucket = choices >> 1 & 3;
    frame.header.chunk = turn & 3;
    frame.header.segment = turn >> 2 & 7;
    frame.payload = Payload((choices & 8) != 0 ? Zeros(frame.header) : Any());
    frame.header = Sealed(frame.header, frame.payload);
    return frame;
  }
  StatusOr<Arrival> Await(std::chrono::steady_clock::time_point deadline) override {
    if (input_.empty()) return Arrival::kNothing;
    if (deadline != kNoWait) return Arrival::kFrame;
    const uint8_t choice = input_.Byte();
    return choice < 128 ? Arrival::kFrame : choice < 192 ? Arrival::kNothing : Arrival::kNudge;
  }
  void Nudge() override {}
  void Cancel(Status) override {}
  [[nodiscard]] uint64_t bytes_sent() const override { return sent_; }

 private:
  std::vector<uint8_t> Any() {
    const std::string text = input_.Text();
    return {text.begin(), text.end()};
  }
  // A sum of nothing, where the header is of a turn.
  [[nodiscard]] std::vector<uint8_t> Zeros(const FrameHeader& header) const {
    if (header.bucket >= kBuckets) return {};
    const Schedule schedule(round_.blocks[header.bucket], round_.position, kSegmentBlocks);
    const auto turn = schedule.Received(header.phase, header.chunk, header.segment);
    if (!turn.ok()) return {};
    const size_t bytes = round_.exact ? (turn->block_count + 63) / 64 * 64
                                      : turn->block_count * exact::kBlockElements * sizeof(float);
    return std::vector<uint8_t>(bytes);
  }

  fuzz::Input& input_;
  const Round& round_;
  uint64_t sent_ = 0;
};

struct Sums {
  std::vector<exact::Block> blocks;
  std::vector<int64_t> own, totals;
  std::vector<float> own_floats, total_floats;
};

Status Add(AllReduce* reduce, uint32_t bucket, const Round& round, Sums* sums) {
  const size_t blocks = round.blocks[bucket], elements = blocks * exact::kBlockElements;
  sums->blocks.assign(blocks, exact::Block{0, 0, exact::kBlockElements});
  if (!round.exact) {
    sums->own_floats.assign(elements, 1);
    sums->total_floats.assign(elements, 0);
    return reduce->AddFloat32(bucket, sums->blocks, sums->own_floats, sums->total_floats);
  }
  sums->own.assign(elements, 3);
  sums->totals.assign(elements, 0);
  return reduce->AddExact(bucket, sums->blocks, std::span<const int64_t>(sums->own),
                          std::span(sums->totals));
}

Status Run(fuzz::Input* input) {
  const uint8_t choices = input->Byte();
  Round round{.position = {.rank = 0, .size = 2U + (choices & 1)}, .exact = (choices & 2) != 0};
  round.position.rank = (choices >> 2) % round.position.size;
  for (size_t& blocks : round.blocks) blocks = 1 + input->Byte() % 12;
  const bool together = input->Byte() % 2 == 0;

  InputLink link(input, &round);
  std::array<Sums, kBuckets> sums;
  AllReduce reduce(&link, round.position, {.segment_elements = kSegmentBlocks * 256});
  reduce.Begin({});
  size_t finished = 0;
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
    RING_RETURN_IF_ERROR(Add(&reduce, bucket, round, &sums[bucket]));
    if (together && bucket + 1 < kBuckets) continue;
    RING_RETURN_IF_ERROR(reduce.Work(together ? AllReduce::Until::kIdle : AllReduce::Until::kNews));
    finished += reduce.TakeFinished().size();
  }
  RING_RETURN_IF_ERROR(reduce.Work(AllReduce::Until::kIdle));
  finished += reduce.TakeFinished().size();
  RING_CHECK(reduce.idle() && finished == kBuckets, "all that was added is finished, once");
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringmaster::ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringmaster::fuzz::Input input(data, size);
  (void)ringmaster::ring::Run(&input);
  return 0;
}
