#include "worker/backend/cuda/libraries/convolution_kernel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernels/products.h"

namespace ringmaster::cuda {
namespace {

MatrixSize SizeOf(const DeviceMatrix& matrix) { return {matrix.rows, matrix.columns}; }

}  // namespace

Status AddBias(const DeviceMatrix& x, const float* bias, graph::Activation activation,
               const DeviceMatrix& y, cudaStream_t stream) {
  const cudaError_t error = WithStorage(y.type, [&]<typename Y>(Y) {
    auto* const to = static_cast<Y*>(y.data);
    if (x.type == y.type) {
      return LaunchBiasActivation(SizeOf(y), static_cast<const Y*>(x.data), bias, activation, to,
                                  stream);
    }
    return LaunchBiasActivation(SizeOf(y), static_cast<const float*>(x.data), bias, activation, to,
                                stream);
  });
  return FromCuda(error, "bias and activation");
}

size_t ColumnSumWorkspace(const DeviceMatrix& x) {
  return WithStorage(x.type, [&]<typename X>(X) { return ColumnSumScratch<X>(SizeOf(x)); });
}

Status SumColumns(const DeviceMatrix& x, void* workspace, float* sums, cudaStream_t stream) {
  const cudaError_t error = WithStorage(x.type, [&]<typename X>(X) {
    return LaunchColumnSums(SizeOf(x), static_cast<const X*>(x.data),
                            static_cast<float*>(workspace), sums, stream);
  });
  return FromCuda(error, "sums of columns");
}

Status Resize(const DeviceMatrix& x, const DeviceMatrix& y, cudaStream_t stream) {
  const cudaError_t error = WithStorage(x.type, [&]<typename X>(X) {
    const auto* const from = static_cast<const X*>(x.data);
    if (x.type == y.type) {
      return LaunchResize(SizeOf(x), from, SizeOf(y), static_cast<X*>(y.data), stream);
    }
    return LaunchResize(SizeOf(x), from, SizeOf(y), static_cast<float*>(y.data), stream);
  });
  return FromCuda(error, "copy of channels");
}

namespace {

// Where part i of as many begins, of a matrix whose rows are those of the parts.
void* AddressOfPart(const DeviceMatrix& matrix, size_t parts, size_t i) {
  return static_cast<std::byte*>(matrix.data) + matrix.bytes() / parts * i;
}

// One tensor of the convolution: as the graph has it, and as cuDNN is given it, in place or as a
// copy in the workspace.
struct Side {
  DeviceMatrix outside, inside;
  size_t offset = 0;

  [[nodiscard]] bool copied() const { return !outside.SameForm(inside); }

  void Reserve(WorkspaceLayout* layout) { offset = layout->Add(copied() ? inside.bytes() : 0); }
  void Attach(const void* address, std::byte* workspace) {
    outside.data = const_cast<void*>(address);
    inside.data = copied() ? workspace + offset : outside.data;
  }
  [[nodiscard]] Status CopyIn(cudaStream_t stream) const {
    return copied() ? Resize(outside, inside, stream) : absl::OkStatus();
  }
  [[nodiscard]] Status CopyOut(cudaStream_t stream) const {
    return copied() ? Resize(inside, outside, stream) : absl::OkStatus();
  }
};

graph::DType TypeOf(const ConvolutionShape& shape, ConvolutionPass writer) {
  return shape.pass == writer ? shape.result : shape.type;
}

DeviceMatrix MatrixX(const ConvolutionShape& s) {
  return {nullptr, s.samples * s.height * s.width, s.channels,
          TypeOf(s, ConvolutionPass::kInputGradient)};
}

DeviceMatrix MatrixW(const ConvolutionShape& s) {
  return {nullptr, s.filters * s.window_height * s.window_width, s.group_channels(),
          TypeOf(s, ConvolutionPass::kWeightGradient)};
}

DeviceMatrix MatrixY(const ConvolutionShape& s) {
  return {nullptr, s.samples * s.output_height() * s.output_width(), s.filters,
          TypeOf(s, ConvolutionPass::kForward)};
}

// A bias that is not fused stays outside.
DeviceMatrix MatrixBias(const ConvolutionShape& s) {
  return {nullptr, 1, s.filters, graph::DType::kFloat32};
}

// Streams beside a kernel's own: what is on them begins behind what is on that one before Fork, and
// what is on that one after Join behind all of it.
class SideStreams {
 public:
  [[nodiscard]] static StatusOr<SideStreams> Make(size_t count) {
    SideStreams made;
    if (count == 0) return made;
    RING_ASSIGN_OR_RETURN(made.forked_, MakeEvent());
    for (size_t i = 0; i < count; ++i) {
      RING_ASSIGN_OR_RETURN(made.streams_.emplace_back(), MakeStream());
      RING_ASSIGN_OR_RETURN(made.joined_.emplace_back(), MakeEvent());
    }
    return made;
  }

  // 0: the kernel's own, which is `stream`.
  [[nodiscard]] cudaStream_t at(size_t i, cudaStream_t stream) const {
    return i == 0 ? stream : streams_[i - 1].get();
  }
  [[nodiscard]] size_t count() const { return 1 + streams_.size(); }

  [[nodiscard]] Status Fork(cudaStream_t stream) const {
    if (streams_.empty()) return absl::OkStatus();
    RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(forked_.get(), stream), "fork"));
    for (const Stream& each : streams_) {
      RING_RETURN_IF_ERROR(FromCuda(cudaStreamWaitEvent(each.get(), forked_.get(), 0), "fork"));
    }
    return absl::OkStatus();
  }
  [[nodiscard]] Status Join(cudaStream_t stream) const {
    for (size_t i = 0; i < streams_.size(); ++i) {
      RING_RETURN_IF_ERROR(FromCuda(cudaEventRecord(joined_[i].get(), streams_[i].get()), "join"));
      RING_RETURN_IF_ERROR(FromCuda(cudaStreamWaitEvent(stream, joined_[i].get(), 0), "join"));
    }
    return absl::OkStatus();
  }

 private:
  Event forked_;
  std::vector<Stream> streams_;
  std::vector<Event> joined_;
};

// How many parts of a convolution are computed side by side.
size_t SideBySide(const ConvolutionParts& parts) {
  constexpr size_t kMost = 16, kMostScratch = size_t{64} << 20;
  if (parts.shape.pass != ConvolutionPass::kWeightGradient) return 1;
  const size_t scratch = std::max<size_t>(1, parts.library.engine->workspace_bytes());
  return std::clamp<size_t>(kMostScratch / scratch, 1,
                            std::min(kMost, static_cast<size_t>(parts.parts)));
}

class ConvolutionKernel final : public Kernel {
 public:
  ConvolutionKernel(std::string name, ConvolutionParts parts, SideStreams streams)
      : name_(std::move(name)),
        shape_(parts.shape),
        fused_(parts.library.variant.fused),
        sums_bias_(parts.bias_gradient == BiasGradient::kWanted),
        parts_(static_cast<size_t>(parts.parts)),
        engine_(std::move(parts.library.engine)),
        streams_(std::move(streams)) {
    const ConvolutionShape inside = Apply(shape_, parts.library.variant);
    x_ = {MatrixX(shape_), MatrixX(inside)};
    w_ = {MatrixW(shape_), MatrixW(inside)};
    y_ = {MatrixY(shape_), MatrixY(inside)};
    bias_ = {MatrixBias(shape_), MatrixBias(fused_ ? inside : shape_)};
    if (adds_parts()) {
      each_w_ = {nullptr, parts.parts, w_.inside.rows * w_.inside.columns, w_.inside.type};
      w_.inside.type = graph::DType::kFloat32;
    }
    for (size_t i = 0; i < streams_.count(); ++i) {
      engine_offsets_.push_back(layout_.Add(engine_->workspace_bytes()));
    }
    for (Side* side : {&x_, &w_, &y_, &bias_}) side->Reserve(&layout_);
    each_w_offset_ = layout_.Add(each_w_.bytes());
    sums_offset_ = layout_.Add(std::max(sums_bias_ ? ColumnSumWorkspace(y_.outside) : 0,
                                        adds_parts() ? ColumnSumWorkspace(each_w_) : 0));
  }

  [[nodiscard]] size_t workspace_bytes() const override { return layout_.bytes(); }

  Status Attach(const Operands& operands) override {
    std::byte* const workspace = operands.workspace;
    switch (shape_.pass) {
      case ConvolutionPass::kForward:
        x_.Attach(operands.inputs[0], workspace);
        w_.Attach(operands.inputs[1], workspace);
        if (shape_.bias) bias_.Attach(operands.inputs[2], workspace);
        y_.Attach(operands.outputs[0], workspace);
        break;
      case ConvolutionPass::kInputGradient:
        y_.Attach(operands.inputs[0], workspace);
        w_.Attach(operands.inputs[1], workspace);
        x_.Attach(operands.outputs[0], workspace);
        break;
      case ConvolutionPass::kWeightGradient:
        x_.Attach(operands.inputs[0], workspace);
        y_.Attach(operands.inputs[1], workspace);
        w_.Attach(operands.outputs[0], workspace);
        if (sums_bias_) bias_gradient_ = operands.output<float>(1);
        break;
    }
    sums_ = workspace + sums_offset_;
    each_w_.data = workspace + each_w_offset_;
    std::vector<ConvolutionOperands> each;
    for (size_t i = 0; i < parts_; ++i) {
      each.push_back({AddressOfPart(x_.inside, parts_, i),
                      adds_parts() ? AddressOfPart(each_w_, parts_, i) : w_.inside.data,
                      AddressOfPart(y_.inside, parts_, i), bias_.inside.data,
                      workspace + engine_offsets_[i % streams_.count()]});
    }
    return engine_->Attach(each);
  }

  Status Launch(cudaStream_t stream) override {
    const Status launched = Enqueue(stream);
    return launched.ok() ? launched : Annotate(launched, name_);
  }

 private:
  [[nodiscard]] bool adds_parts() const {
    return shape_.pass == ConvolutionPass::kWeightGradient && parts_ > 1;
  }

  Status Enqueue(cudaStream_t stream) const {
    switch (shape_.pass) {
      case ConvolutionPass::kForward:
        return EnqueueForward(stream);
      case ConvolutionPass::kInputGradient:
        RING_RETURN_IF_ERROR(y_.CopyIn(stream));
        RING_RETURN_IF_ERROR(w_.CopyIn(stream));
        RING_RETURN_IF_ERROR(EnqueueParts(stream));
        return x_.CopyOut(stream);
      case ConvolutionPass::kWeightGradient:
        break;
    }
    RING_RETURN_IF_ERROR(x_.CopyIn(stream));
    RING_RETURN_IF_ERROR(y_.CopyIn(stream));
    RING_RETURN_IF_ERROR(EnqueueParts(stream));
    if (adds_parts()) {
      auto* const sum = static_cast<float*>(w_.inside.data);
      RING_RETURN_IF_ERROR(SumColumns(each_w_, sums_, sum, stream));
    }
    RING_RETURN_IF_ERROR(w_.CopyOut(stream));
    return sums_bias_ ? SumColumns(y_.outside, sums_, bias_gradient_, stream) : absl::OkStatus();
  }

  Status EnqueueParts(cudaStream_t stream) const {
    RING_RETURN_IF_ERROR(streams_.Fork(stream));
    Status launched;
    for (size_t i = 0; i < parts_ && launched.ok(); ++i) {
      launched = engine_->Launch(i, streams_.at(i % streams_.count(), stream));
    }
    const Status joined = streams_.Join(stream);  // also behind an error: whoever waits, for all
    return launched.ok() ? joined : launched;
  }

  Status EnqueueForward(cudaStream_t stream) const {
    RING_RETURN_IF_ERROR(x_.CopyIn(stream));
    RING_RETURN_IF_ERROR(w_.CopyIn(stream));
    if (fused_ && shape_.bias) RING_RETURN_IF_ERROR(bias_.CopyIn(stream));
    RING_RETURN_IF_ERROR(EnqueueParts(stream));
    RING_RETURN_IF_ERROR(y_.CopyOut(stream));
    if (fused_ || !shape_.fuses_anything()) return absl::OkStatus();
    const auto* bias = shape_.bias ? static_cast<const float*>(bias_.outside.data) : nullptr;
    return AddBias(y_.outside, bias, shape_.attributes.activation, y_.outside, stream);
  }

  const std::string name_;
  const ConvolutionShape shape_;
  const bool fused_, sums_bias_;
  const size_t parts_;
  Side x_, w_, y_, bias_;
  // Where parts are added up: a row each, of what the engine writes of dw. They are added in
  // float32, in the order that the sizes give; `w_.inside` is the sum.
  DeviceMatrix each_w_;
  const std::unique_ptr<ConvolutionEngine> engine_;
  const SideStreams streams_;
  WorkspaceLayout layout_;
  std::vector<size_t> engine_offsets_;  // by stream
  size_t each_w_offset_ = 0, sums_offset_ = 0;
  void* sums_ = nullptr;  // scratch of sums of columns, one after the other
  float* bias_gradient_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> MakeConvolutionKernel(std::string name, ConvolutionParts parts) {
  RING_ASSIGN_OR_RETURN(SideStreams streams, SideStreams::Make(SideBySide(parts) - 1));
  return std::make_unique<ConvolutionKernel>(std::move(name), std::move(parts), std::move(streams));
}

namespace {

// What cuBLASLt is given: whole operands, pieces of a workspace, and parts of y that PatchProductOf
// cuts.
static_assert(kAlignment % kProductAlignment == 0);

// Kernels and their gradients are copied, so that their rows are as long as the patches'.
class PatchKernel final : public Kernel {
 public:
  PatchKernel(const ConvolutionShape& shape, const PatchProduct& product,
              std::unique_ptr<MatmulEngine> engine, BiasGradient bias_gradient)
      : forward_(shape.pass == ConvolutionPass::kForward),
        parts_(product.parts),
        patch_shape_(product.patches),
        engine_(std::move(engine)),
        sums_bias_(bias_gradient == BiasGradient::kWanted) {
    const int64_t image = shape.height * shape.width * shape.channels;
    const auto bytes = static_cast<int64_t>(graph::ByteSize(shape.type));
    x_bytes_ = patch_shape_.samples * image * bytes;
    y_bytes_ = product.rows() * shape.filters * bytes;
    y_ = {nullptr, parts_ * product.rows(), shape.filters, shape.type};
    const graph::DType type = forward_ ? shape.type : shape.result;
    const int64_t window = shape.window_height * shape.window_width * shape.channels;
    w_ = {nullptr, shape.filters, window, type};
    wide_w_ = {nullptr, shape.filters, patch_shape_.columns, type};
    patches_offset_ =
        layout_.Add(static_cast<size_t>(product.rows() * patch_shape_.columns * bytes));
    w_offset_ = layout_.Add(wide_w_.bytes());
    engine_offset_ = layout_.Add(engine_->workspace_bytes());
    sums_offset_ = layout_.Add(sums_bias_ ? ColumnSumWorkspace(y_) : 0);
  }

  [[nodiscard]] size_t workspace_bytes() const override { return layout_.bytes(); }

  Status Attach(const Operands& operands) override {
    std::byte* const workspace = operands.workspace;
    x_ = operands.input<std::byte>(0);
    void* const second = const_cast<void*>(operands.inputs[1]);
    y_.data = forward_ ? operands.outputs[0] : second;
    w_.data = forward_ ? second : operands.outputs[0];
    wide_w_.data = workspace + w_offset_;
    patches_ = workspace + patches_offset_;
    scratch_ = workspace + engine_offset_;
    sums_ = workspace + sums_offset_;
    bias_gradient_ = sums_bias_ ? operands.output<float>(1) : nullptr;
    return absl::OkStatus();
  }

  Status Launch(cudaStream_t stream) override {
    if (forward_) RING_RETURN_IF_ERROR(Resize(w_, wide_w_, stream));
    for (int64_t part = 0; part < parts_; ++part) {
      RING_RETURN_IF_ERROR(
          FromCuda(LaunchPatches(patch_shape_, x_ + part * x_bytes_, patches_, stream), "patches"));
      std::byte* const y = static_cast<std::byte*>(y_.data) + part * y_bytes_;
      const MatmulOperands operands = forward_
                                          ? MatmulOperands{patches_, wide_w_.data, y, scratch_}
                                          : MatmulOperands{y, patches_, wide_w_.data, scratch_};
      const bool adds = !forward_ && part > 0;
      RING_RETURN_IF_ERROR(
          engine_->Launch(operands, adds ? MatmulResult::kAdd : MatmulResult::kWrite, stream));
    }
    if (forward_) return absl::OkStatus();
    RING_RETURN_IF_ERROR(Resize(wide_w_, w_, stream));
    return sums_bias_ ? SumColumns(y_, sums_, bias_gradient_, stream) : absl::OkStatus();
  }

 private:
  const bool forward_;
  const int64_t parts_;
  const PatchShape patch_shape_;
  const std::unique_ptr<MatmulEngine> engine_;
  const bool sums_bias_;
  int64_t x_bytes_ = 0, y_bytes_ = 0;  // of a part
  DeviceMatrix y_, w_, wide_w_;
  WorkspaceLayout layout_;
  size_t patches_offset_ = 0, w_offset_ = 0, engine_offset_ = 0, sums_offset_ = 0;
  const std::byte* x_ = nullptr;
  void *patches_ = nullptr, *scratch_ = nullptr, *sums_ = nullptr;
  float* bias_gradient_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> MakePatchKernel(const ConvolutionShape& shape, const PatchProduct& product,
                                        std::unique_ptr<MatmulEngine> engine,
                                        BiasGradient bias_gradient) {
  return std::make_unique<PatchKernel>(shape, product, std::move(engine), bias_gradient);
}

}  // namespace ringmaster::cuda
