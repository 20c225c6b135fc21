// One program bound to one core: its kernels on the core's stream, with those that make the images
// where it gets pixels, replayed as one CUDA graph, while a second stream copies each gradient to
// the host, or adds it to the sums of the weights' state, as soon as it is complete. The host waits
// for each, or each bucket, or the step alone, as its GradientSink says. Made by CudaCore, used on
// its thread only; shares the core's memory and streams with the core's other executables.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/input.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/cuda/step_layout.h"

namespace ringmaster::cuda {

// How a step reaches the GPU. The bits are the same.
enum class Replay : uint8_t {
  kGraph,    // captured at the second run: at the first, libraries still load code
  kKernels,  // each launched and waited for: to find the one that fails
};

// Where gradients go, and what of them the host waits for before the step's end: what a
// GradientSink says.
enum class Delivery : uint8_t {
  kTaken,           // to the host, each
  kSummed,          // into the weights' sums; to the host what was refused, at the end
  kSummedByBucket,  // likewise, of each bucket as soon as all of it is added
};

// What a core lends to the one executable that runs.
struct Lane {
  Arena device{Place::kDevice};
  Arena host{Place::kPinned};  // what is copied back
  Stream compute;
  Stream copy;
  std::unique_ptr<Uploader> uploader;  // on `compute`
};

// What a step launches.
struct StepKernels {
  const graph::Augmenter* augmenter = nullptr;  // runs get pixels for it; nullptr: images
  std::unique_ptr<CudaAugment> augment;         // its kernels
  graph::ValueId images = graph::kNoValue;      // ImagesOfPixels, which they make
  std::vector<std::unique_ptr<Kernel>> nodes;   // one for each
};

// With what the kernels say that they need.
[[nodiscard]] StepLayout LayOutStep(const graph::Program& program, const StepKernels& kernels);

class CudaExecutable final : public Executable {
 public:
  // `layout` is of these kernels, and `lane` has room for it. All references, and the augmenter,
  // outlive the result.
  [[nodiscard]] static StatusOr<std::unique_ptr<CudaExecutable>> Create(
      const graph::Program& program, DeviceWeights& weights, StepKernels kernels, StepLayout layout,
      Lane& lane, Replay replay);

  // INVALID_ARGUMENT when sizes are not those of the program, a label is out of range, or what was
  // brought ahead is of another size or on another GPU. FAILED_PRECONDITION when gradients are to
  // be summed and the weights have no state.
  Status Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) override;

  [[nodiscard]] const StepLayout& layout() const { return layout_; }
  // Whether such runs replay a graph by now.
  [[nodiscard]] bool captured(Delivery delivery = Delivery::kTaken) const {
    return ways_[static_cast<size_t>(delivery)].graph != nullptr;
  }

 private:
  // How a step that delivers in one way is launched.
  struct Way {
    bool warm = false;     // ran once with these addresses
    bool refused = false;  // could not be captured
    GraphExec graph;
  };

  CudaExecutable(const graph::Program& program, DeviceWeights& weights, StepKernels kernels,
                 StepLayout layout, Lane& lane, Replay replay);
  Status MakeEvents();

  // Gives the kernels their addresses, where the lane's memory is another than before.
  Status Place();
  [[nodiscard]] const void* InputAddress(graph::ValueId value) const;

  Status RunShard(const ShardInput& input, const GradientSink& sink);
  Status Feed(const ShardInput& input);
  Status FeedPixels(const ShardInput& input);
  Status Launch(Delivery delivery);
  // Makes the images of pixels.
  Status LaunchAugment();
  // Launches kernel `n`, or what stands in its place; its node stands in the error.
  Status LaunchKernel(size_t n);
  // Where a step that is put on the streams is among what it delivers.
  struct Delivered {
    size_t copies = 0;
    size_t gradients = 0;  // among them
    size_t told = 0;       // of these, those in groups that have ended
  };
  // Puts all kernels and copies on the streams; `record_flags` of the gradients' events.
  Status Enqueue(Delivery delivery, unsigned record_flags);
  // What is due after `node`.
  Status CopyBackAfter(graph::NodeId node, Delivery delivery, unsigned record_flags,
                       Delivered* delivered);
  Status CopyBackOne(const CopyBack& copy);
  // The gradient at `place` of gradient_order.
  Status AddToSums(const CopyBack& gradient, size_t place);
  // Of the gradients that the host hears of together, and the first of which is at `place`: behind
  // the last one.
  [[nodiscard]] size_t GroupEnd(size_t place, Delivery delivery) const;
  // Brings the flags of such a group, where it has some, and records its event, where it is not the
  // last one.
  Status EndGroup(size_t begin, size_t end, Delivery delivery, unsigned record_flags);
  Status Capture(Delivery delivery);
  // Tells the sink of each group as soon as it is there; the step has ended when it returns.
  Status Deliver(const GradientSink& sink, Delivery delivery) const;

  template <typename T>
  T* At(graph::ValueId value) const {
    return static_cast<T*>(addresses_[static_cast<size_t>(value)]);
  }
  // In this core's memory, beside the values.
  template <typename T>
  T* Beside(size_t offset) const {
    return reinterpret_cast<T*>(lane_.device.data() + offset);
  }
  [[nodiscard]] RunKeys Keys() const {
    return {.seed_and_step = Beside<const uint64_t>(layout_.seed_and_step),
            .samples = Beside<const uint64_t>(layout_.samples)};
  }
  [[nodiscard]] const float* OnHost(size_t offset) const {
    return reinterpret_cast<const float*>(lane_.host.data() + offset);
  }
  // A word for each gradient, by place in gradient_order: what was refused of it.
  [[nodiscard]] uint64_t* Flags() const { return Beside<uint64_t>(layout_.flags); }
  [[nodiscard]] uint64_t* HostFlags() const {
    return reinterpret_cast<uint64_t*>(lane_.host.data() + layout_.host_flags);
  }

  const graph::Program& program_;
  DeviceWeights& weights_;
  const StepKernels kernels_;
  const StepLayout layout_;
  Lane& lane_;
  const Replay replay_;
  const bool reads_statistics_;  // the weights' moving ones
  // The cast in whose place images are made; kFed: that comes before all nodes, or never.
  const graph::NodeId augment_place_;

  std::vector<Event> gradient_events_;  // by place in gradient_order: that of the last of a group
  Event forked_;                        // orders the two streams
  Event done_;                          // stands for the last group, too

  std::vector<void*> addresses_;  // by ValueId; null for parameters
  uint64_t device_version_ = 0;   // of the lane's memory that kernels have addresses of
  uint64_t host_version_ = 0;
  std::array<Way, 3> ways_;  // by Delivery
};

}  // namespace ringmaster::cuda
