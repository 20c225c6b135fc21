#include "bench/control/simulated_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "common/ids.h"

namespace ringmaster::bench {
namespace {

constexpr size_t kMostWaiting = 16;
constexpr std::chrono::milliseconds kReport{250};
constexpr uint64_t kTrainSamples = 1'000'000, kTestSamples = 10'000;
constexpr uint64_t kMostDigests = 8;  // in a report

// 32 bytes, as SHA-256 has.
std::string DigestOf(uint64_t step) { return fmt::format("{:032}", step); }

v1::DatasetFacts MakeFacts() {
  v1::DatasetFacts facts;
  facts.set_format("cifar10");
  for (const auto& [name, samples] :
       {std::pair("data_batch_1.bin", kTrainSamples), {"test_batch.bin", kTestSamples}}) {
    v1::DataFile& file = *facts.add_files();
    file.set_name(name);
    file.set_samples(samples);
    file.set_bytes(samples * 3073);
    file.set_sha256(std::string(64, 'a'));
  }
  facts.set_train_samples(kTrainSamples);
  facts.set_test_samples(kTestSamples);
  v1::StoredColumn& image = *facts.add_columns();
  image.set_name("image");
  image.set_type(v1::ELEMENT_TYPE_UINT8);
  for (const int64_t extent : {32, 32, 3}) image.add_shape(extent);
  image.set_use(v1::COLUMN_USE_INPUT);
  v1::StoredColumn& label = *facts.add_columns();
  label.set_name("label");
  label.set_type(v1::ELEMENT_TYPE_INT32);
  label.set_limit(10);
  label.set_use(v1::COLUMN_USE_TARGET);
  return facts;
}

}  // namespace

// One stream. gRPC holds it until the call is done, and it holds its worker. Outside of its own
// callbacks it may be written to because it has a hold until the first read fails.
class SimulatedWorker::Session final
    : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
      public std::enable_shared_from_this<Session> {
 public:
  explicit Session(std::shared_ptr<SimulatedWorker> worker) : worker_(std::move(worker)) {}

  void Begin(v1::Fleet::Stub& stub) {
    self_ = shared_from_this();
    stub.async()->Session(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  // How many messages wait.
  size_t waiting() {
    MutexLock lock(mu_);
    return outgoing_.size();
  }
  void Write(v1::WorkerMessage message) {
    MutexLock lock(mu_);
    if (ended_) return;
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(mu_);
        ended_ = true;
      }
      return RemoveHold();
    }
    {
      MutexLock lock(worker_->mu_);
      if (worker_->session_.get() == this) worker_->Hear(incoming_);
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    outgoing_.pop_front();
    if (ok && !ended_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnDone(const grpc::Status&) override {
    const std::shared_ptr<Session> self = std::move(self_);
    MutexLock lock(worker_->mu_);
    if (worker_->session_.get() != this) return;
    worker_->session_.reset();
    if (worker_->attached_ && !worker_->stopped_) ++worker_->counts_->ended;
    worker_->attached_ = false;
    worker_->SetRuns(false);
  }

  const std::shared_ptr<SimulatedWorker> worker_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::shared_ptr<Session> self_;
  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::WorkerMessage> outgoing_ ABSL_GUARDED_BY(mu_);  // front: being written
};

SimulatedWorker::SimulatedWorker(std::string name, std::string address,
                                 std::shared_ptr<FleetCounts> counts)
    : name_(std::move(name)), address_(std::move(address)), counts_(std::move(counts)) {}

void SimulatedWorker::Stop() {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mu_);
    stopped_ = true;
    session = session_;
  }
  if (!session) return;
  session->Cancel();
}

// A connection of its own, as a worker on a host of its own has.
void SimulatedWorker::Connect() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  if (!channel_) {
    channel_ = grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::Fleet::NewStub(channel_);
  }
  session_ = std::make_shared<Session>(shared_from_this());
  session_->Begin(*stub_);
  SayAttach();
}

void SimulatedWorker::Beat(Clock::time_point now) {
  MutexLock lock(mu_);
  if (stopped_) return;
  if (!session_) return Connect();
  if (!attached_) return;
  if (session_->waiting() >= kMostWaiting) {
    ++counts_->skipped;
    return;
  }
  Advance(now);
  v1::WorkerMessage message;
  v1::Heartbeat& beat = *message.mutable_heartbeat();
  beat.set_job_id(job_.id);
  if (job_.runs) {
    *beat.mutable_generation() = job_.generation;
    beat.set_applied(job_.applied);
    beat.set_phase("compute");
    beat.set_progress(job_.applied);
  }
  Say(std::move(message));
  if (job_.runs && now - job_.reported >= kReport) SayProgress(now);
}

void SimulatedWorker::Advance(Clock::time_point now) {
  if (!job_.runs) return;
  job_.applied = job_.first + static_cast<uint64_t>((now - job_.began) / kStep);
}

void SimulatedWorker::SayProgress(Clock::time_point now) {
  const uint64_t steps = static_cast<uint64_t>((now - job_.reported) / kStep) + 1;
  job_.reported = now;
  v1::WorkerMessage message;
  v1::Progress& progress = *message.mutable_progress();
  progress.set_job_id(job_.id);
  *progress.mutable_generation() = job_.generation;
  progress.set_applied(job_.applied);
  progress.set_updates(job_.applied);
  progress.set_ring_bytes(1'000'000 * job_.applied);
  progress.set_samples_per_second(1'000);
  progress.set_learning_rate(0.1);
  progress.mutable_step_times()->set_compute(0.015);
  progress.mutable_step_times()->set_total(0.020);
  uint64_t stride = 1;
  while (steps / stride >= kMostDigests) stride *= 2;
  const uint64_t before = job_.applied - std::min(job_.applied, steps);
  for (uint64_t step = (before / stride + 1) * stride; step <= job_.applied; step += stride) {
    v1::StepDigest& digest = *progress.add_digests();
    digest.set_step(step);
    digest.set_digest(DigestOf(step));
  }
  v1::Metric& loss = *progress.add_metrics();
  loss.set_split(v1::SAMPLE_SPLIT_TRAIN);
  loss.set_name("loss");
  loss.set_value(1.0 / static_cast<double>(job_.applied + 1));
  loss.set_step(job_.applied);
  Say(std::move(message));
}

void SimulatedWorker::SayAttach() {
  v1::WorkerMessage message;
  v1::Attach& attach = *message.mutable_attach();
  attach.set_protocol(kProtocolVersion);
  attach.set_name(name_);
  attach.set_incarnation(fmt::format("{:032x}", std::hash<std::string>()(name_)));
  attach.set_ring_address("127.0.0.1:9000");
  attach.set_cores(1);
  attach.set_host("host-" + name_);
  attach.set_highest_term(term_);
  v1::NumericsClass& numerics = *attach.mutable_numerics_class();
  numerics.set_backend("cpu");
  numerics.set_device_model("Simulated CPU");
  numerics.set_instruction_set("avx2");
  numerics.set_threads_per_core(1);
  attach.mutable_device_profile()->set_kind("cpu");
  attach.mutable_device_profile()->set_memory_per_core(uint64_t{8} << 30);
  if (job_.generation.term() > 0) {
    attach.set_job_id(job_.id);
    *attach.mutable_generation() = job_.generation;
    attach.set_applied(job_.applied);
    attach.set_digest(DigestOf(job_.applied));
    attach.add_known_shard_sha256("known");
    *attach.mutable_class_maps() = job_.class_maps;
  }
  Say(std::move(message));
}

void SimulatedWorker::SetRuns(bool runs) {
  if (job_.runs != runs) counts_->running += runs ? 1 : -1;
  job_.runs = runs;
}

void SimulatedWorker::Hear(const v1::CoordinatorMessage& message) {
  v1::WorkerMessage answer;
  const Clock::time_point now = Clock::now();
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kAttached:
      attached_ = true;
      term_ = message.attached().term();
      if (!message.attached().resume()) {
        SetRuns(false);
        job_ = {};
      } else {
        SetRuns(true);  // it went on meanwhile
      }
      return;
    case v1::CoordinatorMessage::kInspect:
      job_ = {};
      job_.id = message.inspect().job_id();
      answer.mutable_heartbeat()->set_job_id(job_.id);
      Say(answer);
      answer.mutable_inspected()->set_job_id(job_.id);
      *answer.mutable_inspected()->mutable_facts() = MakeFacts();
      return Say(std::move(answer));
    case v1::CoordinatorMessage::kPrepare:
      answer.mutable_prepared()->set_job_id(job_.id);
      answer.mutable_prepared()->add_known_shard_sha256("known");
      answer.mutable_prepared()->set_digest(DigestOf(0));
      return Say(std::move(answer));
    case v1::CoordinatorMessage::kFence:
      Advance(now);
      SetRuns(false);
      job_.generation = message.fence().generation();
      term_ = std::max(term_, job_.generation.term());
      answer.mutable_fence_ack()->set_job_id(job_.id);
      *answer.mutable_fence_ack()->mutable_generation() = job_.generation;
      answer.mutable_fence_ack()->set_applied(job_.applied);
      answer.mutable_fence_ack()->set_digest(DigestOf(job_.applied));
      return Say(std::move(answer));
    case v1::CoordinatorMessage::kStart:
      ++counts_->starts;
      job_.generation = message.start().generation();
      job_.class_maps = message.start().class_maps();
      job_.first = job_.applied = message.start().start_step();
      job_.began = job_.reported = now;
      SetRuns(true);
      answer.mutable_joined()->set_job_id(job_.id);
      *answer.mutable_joined()->mutable_generation() = job_.generation;
      return Say(std::move(answer));
    case v1::CoordinatorMessage::kCancel:
      answer.mutable_job_stopped()->set_job_id(job_.id);
      answer.mutable_job_stopped()->set_applied(job_.applied);
      return Say(std::move(answer));
    case v1::CoordinatorMessage::kRelease:
      SetRuns(false);
      job_ = {};
      return;
    default:
      return;
  }
}

void SimulatedWorker::Say(v1::WorkerMessage message) {
  if (!session_) return;
  ++counts_->said;
  session_->Write(std::move(message));
}

}  // namespace ringmaster::bench
