// What workers may say to the coordinator's logic, in any order: three of them, a job, and a list
// of things that happen. A worker answers as it should, or says what the input says; there job and
// generation are made right where the choices say so. What the logic wants done is done at once.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "coordinator/logic/logic.h"
#include "tests/fuzz/input.h"
#include "tests/support/action_queue.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster {
namespace {

using namespace coordinator;  // NOLINT: this is about one of its classes

constexpr size_t kWorkers = 3;
constexpr size_t kMostThings = 200;

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

class Play {
 public:
  Play() {
    CarryOut(logic_.Restore({.term = 1}, now_));
    for (size_t i = 0; i < kWorkers; ++i) Connect(i);
    v1::SubmitRequest submit;
    *submit.mutable_spec() = testing::MakeSpec();
    submit.mutable_spec()->mutable_workers()->set_min(1);
    submit.set_idempotency_key("k1");
    Ask(SubmitAsked{submit, "user/a"});
  }

  void Next(fuzz::Input* input) {
    const uint8_t choices = input->Byte();
    const size_t who = (choices >> 4) % kWorkers;
    switch (choices & 15) {
      case 0:
        Disconnect(who);
        break;
      case 1:
        Connect(who);
        break;
      case 2:
        Pass(std::chrono::milliseconds(input->Byte() * 20));
        break;
      case 3:
        Ask(CancelAsked{JobId(job_)});
        break;
      case 4:
        Ask(DrainAsked{Name(who), (input->Byte() & 1) != 0});
        break;
      case 5:
        Upload(who, input);
        break;
      case 6:
        EndUploads(input->Byte());
        break;
      case 7:
      case 8:
      case 9:
        Say(who, input);
        break;
      case 10:
        Progress(who, input->Byte());
        break;
      default:
        Answer(who);
        break;
    }
  }

 private:
  struct Seat {
    std::optional<SessionId> session;
    std::vector<v1::CoordinatorMessage> heard;  // and not answered
    v1::Generation generation;
    uint64_t applied = 0;
  };

  static std::string Name(size_t who) { return std::string(1, static_cast<char>('a' + who)); }

  void Connect(size_t who) {
    Disconnect(who);
    seats_[who].session = SessionId(++sessions_);
    Step(SessionOpened{*seats_[who].session});
    v1::WorkerMessage message;
    *message.mutable_attach() = testing::MakeAttach(Name(who));
    Tell(who, message);
  }
  void Disconnect(size_t who) {
    if (!seats_[who].session) return;
    const SessionId session = *std::exchange(seats_[who].session, std::nullopt);
    seats_[who].heard.clear();
    Step(SessionClosed{session, "its stream broke"});
  }
  void Pass(std::chrono::milliseconds time) {
    now_.steady += time;
    now_.unix_ms += time.count();
    Step(Tick{});
  }
  // A request has one answer, before anything else.
  void Ask(const Event& event) {
    const int before = replies_;
    Step(event);
    RING_CHECK(replies_ == before + 1, "one reply");
  }
  void Tell(size_t who, const v1::WorkerMessage& message) {
    if (seats_[who].session) Step(WorkerSaid{*seats_[who].session, message});
  }

  // Fields of these names, in whatever is said.
  void MakeRight(size_t who, google::protobuf::Message* said) const {
    const auto* const job = said->GetDescriptor()->FindFieldByName("job_id");
    if (job != nullptr) said->GetReflection()->SetString(said, job, job_);
    const auto* const generation = said->GetDescriptor()->FindFieldByName("generation");
    if (generation == nullptr) return;
    said->GetReflection()->MutableMessage(said, generation)->CopyFrom(seats_[who].generation);
  }
  void Say(size_t who, fuzz::Input* input) {
    const bool right = (input->Byte() & 3) != 0;
    v1::WorkerMessage message;
    if (!message.ParseFromString(input->Text())) return;
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const auto* field : fields) {
      if (right) MakeRight(who, message.GetReflection()->MutableMessage(&message, field));
    }
    Tell(who, message);
  }
  void Progress(size_t who, uint64_t more) {
    Seat& seat = seats_[who];
    // Mostly of the job's ten.
    seat.applied = more < 252 ? std::min<uint64_t>(seat.applied + more % 4, 10) : seat.applied + 7;
    v1::WorkerMessage message;
    v1::Progress& said = *message.mutable_progress();
    MakeRight(who, &said);
    said.set_applied(seat.applied);
    testing::AddDigests(std::to_string(seat.applied) + ":" + Digest(seat.applied), &said);
    Tell(who, message);
    if (more < 128) return;
    message.Clear();
    MakeRight(who, message.mutable_job_finished());
    message.mutable_job_finished()->set_applied(seat.applied);
    Tell(who, message);
  }
  static std::string Digest(uint64_t step) { return "d" + std::to_string(step); }

  // As a worker does that has nothing to say for itself.
  void Answer(size_t who) {
    Seat& seat = seats_[who];
    if (seat.heard.empty()) return;
    const v1::CoordinatorMessage heard = seat.heard.front();
    seat.heard.erase(seat.heard.begin());
    v1::WorkerMessage answer;
    switch (heard.kind_case()) {
      case v1::CoordinatorMessage::kInspect:
        *answer.mutable_inspected()->mutable_facts() = testing::MakeFacts();
        MakeRight(who, answer.mutable_inspected());
        break;
      case v1::CoordinatorMessage::kPrepare:
        answer.mutable_prepared()->add_known_shard_sha256("known");
        answer.mutable_prepared()->set_digest(Digest(0));
        MakeRight(who, answer.mutable_prepared());
        break;
      case v1::CoordinatorMessage::kFence:
        MakeRight(who, answer.mutable_fence_ack());
        *answer.mutable_fence_ack()->mutable_generation() = heard.fence().generation();
        answer.mutable_fence_ack()->set_applied(seat.applied);
        answer.mutable_fence_ack()->set_digest(Digest(seat.applied));
        break;
      case v1::CoordinatorMessage::kStart:
        seat.generation = heard.start().generation();
        seat.applied = heard.start().start_step();
        MakeRight(who, answer.mutable_joined());
        break;
      case v1::CoordinatorMessage::kCancel:
        MakeRight(who, answer.mutable_job_stopped());
        break;
      default:
        return;
    }
    Tell(who, answer);
  }

  void Upload(size_t who, fuzz::Input* input) {
    if (!seats_[who].session) return;
    const bool right = (input->Byte() & 3) != 0;
    v1::CheckpointBegin begin;
    if (!begin.ParseFromString(input->Text())) return;
    if (right) {
      MakeRight(who, &begin);
      begin.set_step(seats_[who].applied);
    }
    open_uploads_[UploadId(++uploads_)] = begin.step();
    Step(UploadAsked{UploadId(uploads_), *seats_[who].session, begin});
  }
  void EndUploads(uint8_t how) {
    const std::map<UploadId, uint64_t> open = open_uploads_;
    for (const auto& [upload, step] : open) {
      if (!open_uploads_.contains(upload)) continue;
      if ((how & 1) != 0) {
        open_uploads_.erase(upload);
        Step(UploadClosed{upload});
      } else {
        Step(UploadVerified{upload, std::string(64, 'e'), Digest(step), result_digest_});
      }
    }
  }

  void Step(const Event& event) { CarryOut(logic_.Step(event, now_)); }
  void CarryOut(Actions actions) {
    queue_.CarryOut(std::move(actions), [this](const Action& action) {
      std::visit([this](const auto& one) { Do(one); }, action);
    });
  }
  template <typename Other>
  void Do(const Other&) {}
  void Do(const Send& action) {
    for (Seat& seat : seats_) {
      if (seat.session == action.session) seat.heard.push_back(action.message);
    }
  }
  void Do(const CloseSession& action) {
    for (Seat& seat : seats_) {
      if (seat.session != action.session) continue;
      seat.session.reset();
      seat.heard.clear();
    }
  }
  void Do(const InsertJob& action) {
    job_ = action.record.id();
    Step(JobInserted{action.record, absl::OkStatus()});
  }
  void Do(const SaveJob& action) {
    if (action.asks) Step(JobSaved{action.record});
  }
  void Do(const InsertCheckpoint& action) {
    Step(CheckpointInserted{action.upload, action.record, action.digest, absl::OkStatus()});
  }
  void Do(const RaiseTerm& action) { Step(TermRaised{action.term}); }
  void Do(const ReadBack& action) { Step(CheckpointsRead{action.job_id, ""}); }
  void Do(const RemoveCheckpoint& action) {
    Step(CheckpointRemoved{action.record, absl::OkStatus()});
  }
  void Do(const PlaceUpload& action) {
    RING_CHECK(open_uploads_.contains(action.upload), "an upload that there is");
    placed_.push_back(action.upload);
    Step(UploadPlaced{action.upload, "/checkpoints/x", absl::OkStatus()});
  }
  void Do(const EndUpload& action) { open_uploads_.erase(action.upload); }
  void Do(const FindCheckpoint& action) {
    CheckpointFound found;
    found.job_id = action.job_id;
    if (!action.candidates.empty()) {
      found.found = action.candidates.front();
      found.digest = Digest(found.found->ref.step());
    }
    Step(found);
  }
  void Do(const Reply&) { ++replies_; }
  void Do(const PublishJob& action) {
    const v1::JobStatus& status = action.view.status;
    RING_CHECK(!IsFinal(state_) || status.state() == state_, "what is final stays so");
    RING_CHECK(status.step() <= status.total_steps() || status.total_steps() == 0,
               "within its steps");
    state_ = status.state();
    if (state_ == v1::JOB_STATE_SUCCEEDED) RING_CHECK(!placed_.empty(), "with a checkpoint");
  }

  Logic logic_{Options()};
  Now now_;
  testing::ActionQueue queue_;
  std::array<Seat, kWorkers> seats_;
  std::map<UploadId, uint64_t> open_uploads_;
  std::vector<UploadId> placed_;
  std::string job_, result_digest_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  uint64_t sessions_ = 0, uploads_ = 0;
  int replies_ = 0;
};

}  // namespace
}  // namespace ringmaster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  [[maybe_unused]] static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  fuzz::Input input(data, size);
  Play play;
  for (size_t i = 0; i < kMostThings && !input.empty(); ++i) play.Next(&input);
  return 0;
}
