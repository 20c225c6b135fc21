#include "worker/backend/pjrt/pjrt_executable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/amount.h"
#include "common/numeric/philox.h"
#include "worker/backend/failure.h"
#include "worker/backend/shard_io.h"

namespace ringmaster::pjrt {
namespace {

template <typename T>
void Put(T value, std::span<std::byte> to) {
  static_assert(sizeof(T) == kElementBytes);
  std::memcpy(to.data(), &value, sizeof(value));
}

// What a plugin has no memory for.
Status NameMemory(const Status& status, const std::string& memory) {
  if (!absl::IsResourceExhausted(status)) return status;
  return OutOfMemory("the device has no room for the program: {}; {}", Message(status), memory);
}

}  // namespace

PjrtExecutable::PjrtExecutable(const graph::Program& program, PjrtWeights& weights, Module module,
                               std::shared_ptr<Lane> lane)
    : program_(program), weights_(weights), lane_(std::move(lane)), module_(std::move(module)) {}

PjrtExecutable::~PjrtExecutable() {
  if (connection_ != 0 && connection_ == lane_->connection()) lane_->Release(bound_.program);
}

StatusOr<std::unique_ptr<PjrtExecutable>> PjrtExecutable::Create(const graph::Program& program,
                                                                 PjrtWeights& weights,
                                                                 uint32_t device,
                                                                 Convolutions convolutions,
                                                                 std::shared_ptr<Lane> lane) {
  RING_ASSIGN_OR_RETURN(Module module, Emit(program, Rows::kSome, convolutions));
  std::unique_ptr<PjrtExecutable> executable(
      new PjrtExecutable(program, weights, std::move(module), std::move(lane)));
  RING_RETURN_IF_ERROR(executable->LayOut(device));
  RING_RETURN_IF_ERROR(executable->CopyText());
  RING_RETURN_IF_ERROR(NameMemory(executable->BindFirst(), executable->DescribeMemory()));
  return executable;
}

Status PjrtExecutable::LayOut(uint32_t device) {
  request_.device = device;
  request_.weights = weights_.table();
  for (const Argument& argument : module_.arguments) {
    BoundArgument bound = {.resident = IsResident(argument)};
    if (bound.resident) {
      RING_ASSIGN_OR_RETURN(bound.index, weights_.TensorOf(argument));
      resident_bytes_ += argument.bytes();
    } else {
      bound.place = Append(TypeOf(argument), &lane_bytes_);
    }
    request_.arguments.push_back(std::move(bound));
  }
  for (const Result& result : module_.results) {
    request_.results.push_back(Append(TypeOf(result), &lane_bytes_));
  }
  return lane_->Reserve(lane_bytes_);
}

Status PjrtExecutable::CopyText() {
  RING_ASSIGN_OR_RETURN(text_, SharedMemory::Create("pjrt-program", module_.text.size(),
                                                    SharedMemory::Access::kRead));
  std::memcpy(text_.data(), module_.text.data(), module_.text.size());
  request_.text_bytes = module_.text.size();
  module_.text = {};
  return absl::OkStatus();
}

Status PjrtExecutable::EnsureBound() {
  RING_RETURN_IF_ERROR(lane_->Connect());
  if (connection_ == lane_->connection()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(bound_, lane_->Bind(request_, text_.file(), weights_.file()));
  connection_ = lane_->connection();
  return absl::OkStatus();
}

Status PjrtExecutable::BindFirst() {
  const Status bound = EnsureBound();
  if (bound.ok() || !lane_->lost()) return bound;
  RING_RETURN_IF_ERROR(lane_->Bury("compiling a program"));
  // What hangs would hang again. Else it may have been another core's program that killed it.
  if (absl::IsDeadlineExceeded(bound)) return bound;
  const Status again = EnsureBound();
  if (!again.ok() && lane_->lost()) {
    RING_RETURN_IF_ERROR(lane_->Bury("compiling a program, for the second time"));
  }
  return again;
}

uint64_t PjrtExecutable::device_bytes() const {
  const CompiledBytes& bytes = bound_.bytes;
  if (!bytes.known) return lane_bytes_;
  const uint64_t sum = bytes.arguments + bytes.outputs + bytes.temporary + bytes.code;
  return sum - std::min(sum, bytes.aliased + resident_bytes_);
}

std::string PjrtExecutable::DescribeMemory() const {
  const CompiledBytes& bytes = bound_.bytes;
  std::string parts = "what it needs beside arguments and results is not known";
  if (bytes.known) {
    parts = fmt::format("arguments {}, results {}, temporary {}, code {}",
                        FormatBytes(bytes.arguments), FormatBytes(bytes.outputs),
                        FormatBytes(bytes.temporary), FormatBytes(bytes.code));
  }
  std::vector<std::pair<std::string, TensorType>> tensors;
  for (const Argument& argument : module_.arguments) {
    if (argument.kind == Argument::Kind::kParameter) {
      tensors.emplace_back(program_.parameters[argument.index].name, TypeOf(argument));
    } else if (argument.kind == Argument::Kind::kColumn) {
      tensors.emplace_back(program_.columns[argument.index].name, TypeOf(argument));
    }
  }
  for (const Result& result : module_.results) {
    if (result.kind != Result::Kind::kGradient) continue;
    tensors.emplace_back("gradient of " + program_.parameters[result.index].name, TypeOf(result));
  }
  std::ranges::stable_sort(tensors, std::greater(),
                           [](const auto& tensor) { return tensor.second.bytes(); });
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, tensors.size()); ++i) {
    text += fmt::format("{}{} {} {}", i == 0 ? "" : ", ", tensors[i].first,
                        tensors[i].second.Text(), FormatBytes(tensors[i].second.bytes()));
  }
  return fmt::format("{}; the largest tensors: {}; take smaller shards", parts, text);
}

std::span<std::byte> PjrtExecutable::Bytes(const Place& place) const {
  return {lane_->memory() + place.offset, place.type.bytes()};
}

std::span<const float> PjrtExecutable::Floats(const Place& place) const {
  const std::span<std::byte> bytes = Bytes(place);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

Status PjrtExecutable::CheckInput(const ShardInput& input) const {
  RING_RETURN_IF_ERROR(CheckShard(program_, nullptr, input, ShardRows::kUpToAll));
  const WeightVersions& versions = weights_.versions();
  for (const BoundArgument& argument : request_.arguments) {
    if (!argument.resident) continue;
    const WeightGroup group = request_.weights.tensors[argument.index].group;
    if (versions[static_cast<size_t>(group)] != 0) continue;
    return FailedPrecondition("the weights were given no values before the first run");
  }
  return absl::OkStatus();
}

// Rows that are no samples: zeros, or for integers the nearest to them that is in range.
void PjrtExecutable::FeedColumn(const graph::Column& column, std::span<const std::byte> rows,
                                std::span<std::byte> to) const {
  std::memcpy(to.data(), rows.data(), rows.size());
  const std::span<std::byte> rest = to.subspan(rows.size());
  const bool whole = program_.graph.value(column.value).dtype == graph::DType::kInt32;
  const auto filler =
      static_cast<int32_t>(whole ? std::clamp<int64_t>(0, column.least, column.limit - 1) : 0);
  for (size_t at = 0; at < rest.size(); at += kElementBytes) {
    Put(filler, rest.subspan(at));
  }
}

void PjrtExecutable::FeedDropout(const std::string& layer, const ShardInput& input,
                                 std::span<std::byte> to) const {
  constexpr size_t kRowBytes = 4 * sizeof(uint32_t);
  std::memset(to.data(), 0, to.size());
  for (size_t row = 0; row < input.samples.size(); ++row) {
    const PhiloxStream stream(input.seed, PhiloxStream::Purpose::kDropout, input.step,
                              input.samples[row], layer);
    const std::array<uint32_t, 4> words = {stream.key()[0], stream.key()[1],
                                           stream.counter_high()[0], stream.counter_high()[1]};
    std::memcpy(to.data() + row * kRowBytes, words.data(), kRowBytes);
  }
}

void PjrtExecutable::Feed(const ShardInput& input) const {
  for (size_t i = 0; i < module_.arguments.size(); ++i) {
    const Argument& argument = module_.arguments[i];
    if (request_.arguments[i].resident) continue;
    const std::span<std::byte> to = Bytes(request_.arguments[i].place);
    switch (argument.kind) {
      case Argument::Kind::kColumn:
        FeedColumn(program_.columns[argument.index], input.columns[argument.index], to);
        break;
      case Argument::Kind::kSeed:
        Put(input.loss_seed * program_.seeds[argument.index].weight, to);
        break;
      case Argument::Kind::kShare:
        Put(input.share, to);
        break;
      case Argument::Kind::kRows:
        Put(static_cast<int32_t>(input.samples.size()), to);
        break;
      case Argument::Kind::kDropout:
        FeedDropout(module_.dropout_layers[argument.index], input, to);
        break;
      default:
        break;  // resident
    }
  }
}

Status PjrtExecutable::BindAgain(const GradientSink& sink) {
  if (connection_ == lane_->connection() || !sink.outage) return EnsureBound();
  const bool wanted = sink.outage(Outage::kBegins);
  const Status bound =
      wanted ? EnsureBound() : absl::CancelledError("the run ends before its device is up again");
  sink.outage(Outage::kEnds);
  return bound;
}

Status PjrtExecutable::RunOnce() {
  const WeightVersions& versions = weights_.versions();
  return lane_->Run({.program = bound_.program,
                     .parameters = versions[static_cast<size_t>(WeightGroup::kParameters)],
                     .frozen = versions[static_cast<size_t>(WeightGroup::kFrozen)],
                     .statistics = versions[static_cast<size_t>(WeightGroup::kStatistics)]});
}

void PjrtExecutable::Collect(size_t rows, ShardOutput* output) const {
  output->scalars.assign(program_.scalars.size(), 0);
  output->rows.assign(program_.rows.size(), {});
  output->batch_means.clear();
  output->batch_variances.clear();
  for (size_t i = 0; i < module_.results.size(); ++i) {
    const Result& result = module_.results[i];
    const std::span<const float> values = Floats(request_.results[i]);
    switch (result.kind) {
      case Result::Kind::kScalar:
        output->scalars[result.index] = static_cast<double>(values[0]);
        break;
      case Result::Kind::kRows: {
        const size_t valid = values.size() / static_cast<size_t>(program_.samples) * rows;
        output->rows[result.index].assign(values.begin(),
                                          values.begin() + static_cast<ptrdiff_t>(valid));
        break;
      }
      case Result::Kind::kBatchMean:
        output->batch_means.insert(output->batch_means.end(), values.begin(), values.end());
        break;
      case Result::Kind::kBatchVariance:
        output->batch_variances.insert(output->batch_variances.end(), values.begin(), values.end());
        break;
      case Result::Kind::kGradient:
        break;
    }
  }
}

void PjrtExecutable::Deliver(const GradientSink& sink) const {
  for (size_t i = 0; i < module_.results.size(); ++i) {
    const Result& result = module_.results[i];
    if (result.kind != Result::Kind::kGradient) continue;
    sink.take(static_cast<uint32_t>(result.index), 0, Floats(request_.results[i]));
  }
}

Status PjrtExecutable::Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) {
  RING_RETURN_IF_ERROR(CheckInput(input));
  for (size_t deaths = 0;;) {
    const Status bound = BindAgain(sink);
    // Each time: a plugin that dies may have written anywhere.
    if (bound.ok()) Feed(input);
    const Status ran = bound.ok() ? RunOnce() : bound;
    if (ran.ok()) break;
    if (!lane_->lost()) return NameMemory(ran, DescribeMemory());
    const std::string what =
        fmt::format("{}step {}", bound.ok() ? "" : "compiling again for ", input.step);
    RING_RETURN_IF_ERROR(lane_->Bury(what));
    // As in BindFirst. Of deaths that are too far apart to count elsewhere there is an end, too.
    if (absl::IsDeadlineExceeded(bound)) return bound;
    if (++deaths <= lane_->max_deaths()) continue;
    return Annotate(ran, fmt::format("the plugin died {} times in step {}", deaths, input.step));
  }
  Deliver(sink);
  Collect(input.samples.size(), output);
  return absl::OkStatus();
}

}  // namespace ringmaster::pjrt
