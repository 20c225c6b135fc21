#include "worker/backend/cuda/cuda_executable.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "worker/backend/cuda/input.h"
#include "worker/backend/cuda/kernels/state.h"
#include "worker/backend/shard_io.h"

namespace ringmaster::cuda {
namespace {

Delivery DeliveryOf(const GradientSink& sink) {
  if (!sink.summed) return Delivery::kTaken;
  return sink.told == SumsTold::kAtEnd ? Delivery::kSummed : Delivery::kSummedByBucket;
}

bool ReadsMovingStatistics(const graph::Program& program) {
  return std::ranges::any_of(program.normalizations, [](const graph::Normalization& each) {
    return each.moving_mean != graph::kNoValue || each.moving_variance != graph::kNoValue;
  });
}

}  // namespace

StepLayout LayOutStep(const graph::Program& program, const StepKernels& kernels) {
  std::vector<size_t> workspace;
  for (const auto& kernel : kernels.nodes) workspace.push_back(kernel->workspace_bytes());
  AugmentBytes augment;
  if (kernels.augment != nullptr) {
    augment.pixels = static_cast<size_t>(program.samples) * kernels.augmenter->stored().elements();
    augment.workspace = kernels.augment->workspace_bytes(program.samples);
    augment.images = kernels.images;
  }
  return LayOutStep(program, kAlignment, std::move(workspace), augment);
}

CudaExecutable::CudaExecutable(const graph::Program& program, DeviceWeights& weights,
                               StepKernels kernels, StepLayout layout, Lane& lane, Replay replay)
    : program_(program),
      weights_(weights),
      kernels_(std::move(kernels)),
      layout_(std::move(layout)),
      lane_(lane),
      replay_(replay),
      reads_statistics_(ReadsMovingStatistics(program)),
      augment_place_(kernels_.augment == nullptr ? graph::kFed
                                                 : program.graph.value(kernels_.images).producer) {}

StatusOr<std::unique_ptr<CudaExecutable>> CudaExecutable::Create(const graph::Program& program,
                                                                 DeviceWeights& weights,
                                                                 StepKernels kernels,
                                                                 StepLayout layout, Lane& lane,
                                                                 Replay replay) {
  std::unique_ptr<CudaExecutable> executable(
      new CudaExecutable(program, weights, std::move(kernels), std::move(layout), lane, replay));
  RING_RETURN_IF_ERROR(executable->MakeEvents());
  for (const auto* parameters : {&program.parameters, &program.frozen}) {
    for (const graph::Parameter& parameter : *parameters) {
      RING_RETURN_IF_ERROR(weights.Provide(program.graph.value(parameter.value).dtype));
    }
  }
  return executable;
}

Status CudaExecutable::MakeEvents() {
  RING_ASSIGN_OR_RETURN(forked_, MakeEvent());
  RING_ASSIGN_OR_RETURN(done_, MakeEvent());
  gradient_events_.resize(layout_.gradients);
  for (Event& event : gradient_events_) {
    RING_ASSIGN_OR_RETURN(event, MakeEvent());
  }
  return absl::OkStatus();
}

Status CudaExecutable::Place() {
  if (device_version_ == lane_.device.version() && host_version_ == lane_.host.version()) {
    return absl::OkStatus();
  }
  if (lane_.device.size() < layout_.core.bytes || lane_.host.size() < layout_.host_bytes) {
    return FailedPrecondition(
        "the core has lost its memory: a program that was bound later did "
        "not fit");
  }
  ways_ = {};
  std::byte* const memory = lane_.device.data();
  addresses_ = AddressesOf(program_, layout_, memory);
  for (size_t n = 0; n < kernels_.nodes.size(); ++n) {
    const graph::Node& node = program_.graph.nodes()[n];
    Operands operands = {.workspace = memory + layout_.core.plan.workspaces[n].offset,
                         .keys = Keys()};
    for (graph::ValueId input : node.inputs) operands.inputs.push_back(InputAddress(input));
    for (graph::ValueId output : node.outputs) operands.outputs.push_back(At<void>(output));
    RING_RETURN_IF_ERROR(Annotate(kernels_.nodes[n]->Attach(operands), node.name));
  }
  device_version_ = lane_.device.version();
  host_version_ = lane_.host.version();
  return absl::OkStatus();
}

const void* CudaExecutable::InputAddress(graph::ValueId value) const {
  if (const auto parameter = ParameterOf(program_, value)) {
    return weights_.parameter(*parameter, program_.graph.value(value).dtype);
  }
  for (size_t i = 0; i < program_.normalizations.size(); ++i) {
    const graph::Normalization& normalization = program_.normalizations[i];
    if (value == normalization.moving_mean) return weights_.moving_mean(i);
    if (value == normalization.moving_variance) return weights_.moving_variance(i);
  }
  return At<void>(value);
}

Status CudaExecutable::Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) {
  RING_RETURN_IF_ERROR(CheckShard(program_, kernels_.augmenter, input));
  RING_RETURN_IF_ERROR(weights_.Ready());
  if (reads_statistics_) RING_RETURN_IF_ERROR(weights_.BringStatistics());
  if (sink.summed && weights_.sums() == nullptr) {
    return FailedPrecondition(
        "gradients are to be summed on the GPU, but the weights have no state; make one first");
  }
  const Status status = RunShard(input, sink);
  if (!status.ok()) {
    // Nothing may still write where the next run, or nobody, has its memory.
    (void)cudaStreamSynchronize(lane_.compute.get());
    (void)cudaStreamSynchronize(lane_.copy.get());
    return status;
  }
  CollectOutput(
      program_, [this](graph::ValueId value) { return OnHost(layout_.host_offset(value)); },
      output);
  return absl::OkStatus();
}

Status CudaExecutable::RunShard(const ShardInput& input, const GradientSink& sink) {
  RING_RETURN_IF_ERROR(Place());
  RING_RETURN_IF_ERROR(Feed(input));
  const Delivery delivery = DeliveryOf(sink);
  if (sink.summed) {  // nobody has waited for the step's zeros
    RING_RETURN_IF_ERROR(FromCuda(
        cudaStreamWaitEvent(lane_.compute.get(), weights_.sums()->cleared, 0), "sums of a step"));
  }
  RING_RETURN_IF_ERROR(Launch(delivery));
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(done_.get(), lane_.compute.get()), "step"));
  RING_RETURN_IF_ERROR(Deliver(sink, delivery));
  ways_[static_cast<size_t>(delivery)].warm = true;
  return absl::OkStatus();
}

Status CudaExecutable::Feed(const ShardInput& input) {
  const auto upload = [this](const auto& values, void* to) {
    return lane_.uploader->Copy(std::data(values), to, std::size(values) * sizeof(values[0]));
  };
  const uint64_t seed_and_step[] = {input.seed, input.step};
  RING_RETURN_IF_ERROR(upload(seed_and_step, Beside<void>(layout_.seed_and_step)));
  RING_RETURN_IF_ERROR(upload(input.samples, Beside<void>(layout_.samples)));
  for (const graph::Seed& seed : program_.seeds) {
    const float value[] = {input.loss_seed * seed.weight};
    RING_RETURN_IF_ERROR(upload(value, At<void>(seed.value)));
  }
  if (program_.share != graph::kNoValue) {
    const float value[] = {input.share};
    RING_RETURN_IF_ERROR(upload(value, At<void>(program_.share)));
  }
  for (size_t i = 0; i < program_.columns.size(); ++i) {
    if (input.columns[i].empty()) continue;  // it is made of pixels
    RING_RETURN_IF_ERROR(upload(input.columns[i], At<void>(program_.columns[i].value)));
  }
  return kernels_.augment == nullptr ? absl::OkStatus() : FeedPixels(input);
}

Status CudaExecutable::FeedPixels(const ShardInput& input) {
  void* const to = Beside<void>(layout_.pixels);
  if (input.staged == nullptr) {
    return lane_.uploader->Copy(input.pixels.data(), to, input.pixels.size());
  }
  const auto* const staged = dynamic_cast<const CudaStagedInput*>(input.staged);
  if (staged == nullptr || staged->device() != weights_.device() ||
      staged->bytes() != input.pixels.size()) {
    return InvalidArgument(
        "input copied ahead: expected {} bytes on GPU {}; give a run what the stage of its own GPU "
        "was given",
        input.pixels.size(), weights_.device());
  }
  return staged->CopyTo(to, lane_.compute.get());
}

Status CudaExecutable::Launch(Delivery delivery) {
  Way& way = ways_[static_cast<size_t>(delivery)];
  if (replay_ == Replay::kGraph && way.warm && way.graph == nullptr && !way.refused) {
    const Status status = Capture(delivery);
    way.refused = !status.ok();
    if (way.refused) {
      spdlog::warn("a step is launched kernel by kernel, which is slower: {}", Message(status));
    }
  }
  if (way.graph == nullptr) return Enqueue(delivery, cudaEventRecordDefault);
  return FromCuda(cudaGraphLaunch(way.graph.get(), lane_.compute.get()), "launch of a step");
}

Status CudaExecutable::LaunchAugment() {
  const RunKeys keys = Keys();
  Status status = kernels_.augment->Launch(
      Beside<const uint8_t>(layout_.pixels), program_.samples, keys.seed_and_step, keys.samples,
      Beside<std::byte>(layout_.augment_workspace), At<void>(kernels_.images), lane_.compute.get());
  if (status.ok() && replay_ == Replay::kKernels) {
    status = FromCuda(cudaStreamSynchronize(lane_.compute.get()), "augmentation");
  }
  return status;
}

Status CudaExecutable::LaunchKernel(size_t n) {
  const graph::Node& node = program_.graph.nodes()[n];
  if (static_cast<graph::NodeId>(n) == augment_place_) return Annotate(LaunchAugment(), node.name);
  Status status = kernels_.nodes[n]->Launch(lane_.compute.get());
  if (status.ok() && replay_ == Replay::kKernels) {
    status = FromCuda(cudaStreamSynchronize(lane_.compute.get()), node.op());
  }
  return Annotate(status, node.name);
}

Status CudaExecutable::Enqueue(Delivery delivery, unsigned record_flags) {
  if (kernels_.augment != nullptr && augment_place_ == graph::kFed) {
    RING_RETURN_IF_ERROR(LaunchAugment());
  }
  if (delivery != Delivery::kTaken && layout_.gradients > 0) {
    static_assert(kNothingRefused == ~uint64_t{0});
    RING_RETURN_IF_ERROR(FromCuda(
        cudaMemsetAsync(Flags(), 0xff, layout_.gradients * sizeof(uint64_t), lane_.compute.get()),
        "flags"));
  }
  Delivered delivered;
  for (size_t n = 0; n < kernels_.nodes.size(); ++n) {
    RING_RETURN_IF_ERROR(LaunchKernel(n));
    RING_RETURN_IF_ERROR(
        CopyBackAfter(static_cast<graph::NodeId>(n), delivery, record_flags, &delivered));
  }
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(forked_.get(), lane_.copy.get()), "join"));
  return FromCuda(cudaStreamWaitEvent(lane_.compute.get(), forked_.get(), 0), "join");
}

Status CudaExecutable::CopyBackAfter(graph::NodeId node, Delivery delivery, unsigned record_flags,
                                     Delivered* delivered) {
  const std::vector<CopyBack>& copies = layout_.copies;
  size_t& next = delivered->copies;
  if (next == copies.size() || copies[next].after > node) return absl::OkStatus();
  RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(forked_.get(), lane_.compute.get()), "fork"));
  RING_RETURN_IF_ERROR(FromCuda(cudaStreamWaitEvent(lane_.copy.get(), forked_.get(), 0), "fork"));
  for (; next < copies.size() && copies[next].after <= node; ++next) {
    const CopyBack& copy = copies[next];
    const bool summed = copy.parameter && delivery != Delivery::kTaken;
    RING_RETURN_IF_ERROR(summed ? AddToSums(copy, delivered->gradients) : CopyBackOne(copy));
    if (!copy.parameter) continue;
    if (++delivered->gradients < GroupEnd(delivered->told, delivery)) continue;
    RING_RETURN_IF_ERROR(EndGroup(delivered->told, delivered->gradients, delivery, record_flags));
    delivered->told = delivered->gradients;
  }
  return absl::OkStatus();
}

Status CudaExecutable::CopyBackOne(const CopyBack& copy) {
  const void* const from =
      copy.value == graph::kNoValue ? Beside<void>(layout_.statistics) : At<void>(copy.value);
  return FromCuda(
      cudaMemcpyAsync(lane_.host.data() + copy.host_offset, from, copy.elements * sizeof(float),
                      cudaMemcpyDeviceToHost, lane_.copy.get()),
      "copy back");
}

Status CudaExecutable::AddToSums(const CopyBack& gradient, size_t place) {
  const GradientSums& sums = *weights_.sums();
  const exact::TensorRange& tensor = sums.layout->tensor(*gradient.parameter);
  const TensorQuantization quantization{.exponents = sums.exponents + tensor.first_block,
                                        .precision_bits = sums.precision_bits,
                                        .gradient_scale = sums.gradient_scale,
                                        .shards = sums.shards};
  return FromCuda(LaunchQuantizeAdd(At<const float>(gradient.value),
                                    static_cast<int64_t>(gradient.elements), quantization,
                                    sums.sums + tensor.offset(), Flags() + place, lane_.copy.get()),
                  fmt::format("sum of the gradients of parameter {}", *gradient.parameter));
}

size_t CudaExecutable::GroupEnd(size_t place, Delivery delivery) const {
  if (delivery == Delivery::kTaken) return place + 1;
  if (delivery == Delivery::kSummed) return layout_.gradients;
  const std::vector<uint32_t>& order = program_.gradient_order;
  const std::vector<uint32_t>& bucket_of = weights_.sums()->bucket_of_tensor;
  size_t end = place + 1;
  while (end < order.size() && bucket_of[order[end]] == bucket_of[order[place]]) ++end;
  return end;
}

Status CudaExecutable::EndGroup(size_t begin, size_t end, Delivery delivery,
                                unsigned record_flags) {
  if (delivery != Delivery::kTaken) {
    RING_RETURN_IF_ERROR(FromCuda(
        cudaMemcpyAsync(HostFlags() + begin, Flags() + begin, (end - begin) * sizeof(uint64_t),
                        cudaMemcpyDeviceToHost, lane_.copy.get()),
        "copy back of flags"));
  }
  if (end == layout_.gradients) return absl::OkStatus();
  return FromCuda(
      cudaEventRecordWithFlags(gradient_events_[end - 1].get(), lane_.copy.get(), record_flags),
      "event of gradients");
}

Status CudaExecutable::Capture(Delivery delivery) {
  // Other threads may allocate meanwhile; this one must not.
  RING_RETURN_IF_ERROR(FromCuda(
      cudaStreamBeginCapture(lane_.compute.get(), cudaStreamCaptureModeThreadLocal), "capture"));
  const Status enqueued = Enqueue(delivery, cudaEventRecordExternal);
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(lane_.compute.get(), &captured);
  const Graph graph(captured);
  if (!enqueued.ok() || ended != cudaSuccess) {
    (void)cudaGetLastError();  // reported here, not by the next launch
    return enqueued.ok() ? FromCuda(ended, "capture") : Annotate(enqueued, "capture");
  }
  cudaGraphExec_t executable = nullptr;
  RING_RETURN_IF_ERROR(
      FromCuda(cudaGraphInstantiate(&executable, graph.get(), 0), "instantiation of a step"));
  ways_[static_cast<size_t>(delivery)].graph.reset(executable);
  return absl::OkStatus();
}

Status CudaExecutable::Deliver(const GradientSink& sink, Delivery delivery) const {
  size_t place = 0;
  size_t there = 0;  // behind the last gradient that is there
  for (const CopyBack& copy : layout_.copies) {
    if (!copy.parameter) continue;
    if (place == there) {
      there = GroupEnd(place, delivery);
      const Event& event = there == layout_.gradients ? done_ : gradient_events_[there - 1];
      RING_RETURN_IF_ERROR(Await(event.get(), "step"));
    }
    if (delivery == Delivery::kTaken) {
      sink.take(*copy.parameter, 0, {OnHost(copy.host_offset), copy.elements});
    } else {
      sink.summed(*copy.parameter, RefusedKind(HostFlags()[place]));
    }
    ++place;
  }
  return layout_.gradients > 0 ? absl::OkStatus() : Await(done_.get(), "step");
}

}  // namespace ringmaster::cuda
