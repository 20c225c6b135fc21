#include "tests/sim/oracle.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "common/job/resolve.h"
#include "common/sha256.h"
#include "tests/sim/cluster.h"
#include "tests/sim/describe.h"

namespace ringmaster::sim {
namespace {

constexpr uint64_t kMostWork = 60;  // look-ups of members in one event, for each of them

GenerationId IdOf(const v1::Generation& generation) {
  return {generation.term(), generation.counter()};
}

// Equal for equal messages: a map field is in its order of keys.
std::string BytesOf(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

bool HasMapsOf(const v1::Start& start, const coordinator::JobRecord& record) {
  if (!record.resolved || record.status.generation().term() == 0) return false;
  const ClassMaps& stored = record.resolved->result().class_maps();
  return std::ranges::equal(start.class_maps(), stored, {}, BytesOf, BytesOf);
}

uint64_t RewindsOf(const v1::JobStatus& status) {
  return static_cast<uint64_t>(
      std::count_if(status.regroups().begin(), status.regroups().end(),
                    [](const v1::Regroup& regroup) { return regroup.rewound(); }));
}

}  // namespace

// ---- workers ------------------------------------------------------------------------------------

void Oracle::OnResolved(const std::string& job, const v1::ResolvedJob& resolved) {
  const auto known = jobs_.find(job);
  if (known != jobs_.end()) {
    v1::ResultSpec before = known->second.resolved.result(), now = resolved.result();
    if (BytesOf(before) == BytesOf(now)) return;
    before.clear_class_maps();
    now.clear_class_maps();
    if (BytesOf(before) != BytesOf(now)) {
      cluster_->world.Violate("job " + job + " was resolved again, to something else");
    }
  }
  Known& mine = jobs_[job];
  mine.resolved = resolved;
  (void)HistoryOf(mine, resolved.result().class_maps());
}

const std::vector<StateHash>& Oracle::HistoryOf(Known& job, const ClassMaps& maps) {
  std::string key;
  for (const v1::ClassMap& map : maps) key += BytesOf(map) + "/";
  const auto [place, fresh] = job.histories.try_emplace(key);
  if (fresh) place->second = UndisturbedStates(job.resolved.result(), maps);
  return place->second;
}

void Oracle::CheckState(const std::string& job, uint64_t step, const std::string& digest,
                        const std::string& what) {
  const auto known = jobs_.find(job);
  if (known == jobs_.end()) return;
  for (const auto& [maps, states] : known->second.histories) {
    if (step < states.size() && digest == DigestOf(states[step])) return;
  }
  cluster_->world.Violate(fmt::format(
      "rule 1: {} of {} at step {} is not the undisturbed run's state", what, job, step));
}

void Oracle::CheckStateBy(const ClassMaps& maps, const std::string& job, uint64_t step,
                          StateHash state, const std::string& what) {
  const auto known = jobs_.find(job);
  if (known == jobs_.end()) return;
  const std::vector<StateHash>& states = HistoryOf(known->second, maps);
  if (step < states.size() && state == states[step]) return;
  cluster_->world.Violate(
      fmt::format("rule 1: {} of {} at step {} is not the state of the undisturbed run by the same "
                  "class maps",
                  what, job, step));
}

void Oracle::OnHeard(const Who& who, const v1::CoordinatorMessage& message) {
  if (!message.has_fence()) return;
  heard_[{who, IdOf(message.fence().generation())}] = terms_[who.host];
}

void Oracle::OnTermSaved(const Who& who, uint64_t term) {
  if (term < terms_[who.host]) {
    cluster_->world.Violate(
        fmt::format("rule 5: w{} saves term {} after {}", who.host, term, terms_[who.host]));
  }
  terms_[who.host] = term;
}

void Oracle::OnFenceAck(const Who& who, const v1::FenceAck& ack) {
  const GenerationId generation = IdOf(ack.generation());
  CheckReport(who, ack);
  CheckState(ack.job_id(), ack.applied(), ack.digest(), fmt::format("FenceAck by w{}", who.host));
  // A fence that came in its term may be acknowledged later: nobody waits for that any more.
  const auto heard = heard_.find({who, generation});
  if (heard == heard_.end() || generation.term < heard->second) {
    cluster_->world.Violate(
        fmt::format("rule 5: w{} obeys fence {}", who.host, generation.ToString()));
  }
  GenerationId& newest = acknowledged_[who][ack.job_id()];
  newest = std::max(newest, generation);
}

template <typename Report>
void Oracle::CheckReport(const Who& who, const Report& report) {
  uint64_t last = 0;
  for (const v1::StepDigest& each : report.digests()) {
    CheckState(report.job_id(), each.step(), each.digest(), fmt::format("report by w{}", who.host));
    if (each.step() <= last || each.step() > report.applied()) {
      cluster_->world.Violate(fmt::format("w{} at step {} reports the digest of step {} after {}",
                                          who.host, report.applied(), each.step(), last));
    }
    last = each.step();
  }
}

void Oracle::OnSaid(const Who& who, const v1::WorkerMessage& message) {
  if (message.has_fence_ack()) OnFenceAck(who, message.fence_ack());
  if (message.has_progress()) CheckReport(who, message.progress());
  if (message.has_job_finished()) CheckReport(who, message.job_finished());
}

void Oracle::OnRunBegin(const Who& who, const v1::Start& start, uint64_t applied) {
  const GenerationId generation = IdOf(start.generation());
  if (generation.term < terms_[who.host]) {
    cluster_->world.Violate(fmt::format("rule 5: w{} runs {} after term {}", who.host,
                                        generation.ToString(), terms_[who.host]));
  }
  if (generation < acknowledged_[who][start.job_id()]) {
    cluster_->world.Violate(fmt::format("rule 2: w{} runs {} after it acknowledged {}", who.host,
                                        generation.ToString(),
                                        acknowledged_[who][start.job_id()].ToString()));
  }
  if (applied > start.start_step()) {
    cluster_->world.Violate(fmt::format("rule 4: w{} holds S({}), {} starts at step {}", who.host,
                                        applied, generation.ToString(), start.start_step()));
  }
  for (const v1::RingMember& member : start.ring()) {
    const bool mine = member.name() == cluster_->NameAt(who.host);
    if (!mine || !member.follows()) continue;
    lacking_.insert({who, generation});
    ++counts_.followed;
    return;
  }
  if (applied < start.start_step()) ++counts_.fetched_or_restored;
}

void Oracle::OnWhole(const Who& who, const v1::Start& start, uint64_t step, StateHash state) {
  const GenerationId generation = IdOf(start.generation());
  cluster_->world.Log(
      fmt::format("w{} is whole: S({}) in {}", who.host, step, generation.ToString()));
  ++counts_.whole;
  lacking_.erase({who, generation});
  CheckStateBy(start.class_maps(), start.job_id(), step, state,
               fmt::format("state that w{} followed to", who.host));
}

void Oracle::OnApply(const Who& who, const v1::Start& start, uint64_t applied, StateHash state) {
  const std::string& job = start.job_id();
  const GenerationId generation = IdOf(start.generation());
  cluster_->world.Log(
      fmt::format("w{} applied: S({}) in {}", who.host, applied, generation.ToString()));
  ++counts_.applied;
  CheckStateBy(start.class_maps(), job, applied, state,
               fmt::format("step applied by w{}", who.host));
  if (lacking_.contains({who, generation})) {
    cluster_->world.Violate(fmt::format("rule 4: w{} applies step {} of {} without its state",
                                        who.host, applied - 1, generation.ToString()));
  }
  if (generation < acknowledged_[who][job]) {
    cluster_->world.Violate(fmt::format("rule 2: w{} applies a step of {} after it acknowledged {}",
                                        who.host, generation.ToString(),
                                        acknowledged_[who][job].ToString()));
  }
  CheckSkew(who, start, applied);
}

void Oracle::OnStep(const Who& who, const v1::Start& start, uint64_t step) {
  Reached& reached = reached_[BytesOf(start)];
  reached.begun = std::max(reached.begun, step + 1);
  if (!reached.boundary || *reached.boundary > step) return;
  cluster_->world.Violate(fmt::format("rule 10: w{} begins step {} of {}, which ended before it",
                                      who.host, step, IdOf(start.generation()).ToString()));
}

void Oracle::OnBoundary(const Who& who, const v1::Start& start, uint64_t applied) {
  Reached& reached = reached_[BytesOf(start)];
  if (!reached.boundary) reached.boundary = applied;
  if (*reached.boundary == applied && reached.begun <= applied) return;
  cluster_->world.Violate(fmt::format(
      "rule 10: w{} ends {} before step {}, another one before {}, and step {} began", who.host,
      IdOf(start.generation()).ToString(), applied, *reached.boundary, reached.begun - 1));
}

void Oracle::CheckSkew(const Who& who, const v1::Start& start, uint64_t applied) {
  for (const auto& [host, worker] : cluster_->workers) {
    const v1::Start* const running = worker->trainer().running();
    if (!worker->life()->alive || running == nullptr) continue;
    if (running->ticket() != start.ticket()) continue;
    const uint64_t step = worker->trainer().step();
    if (step + 1 < applied || step > applied + 1) {
      cluster_->world.Violate(fmt::format("rule 3: in {} w{} is at step {}, w{} at step {}",
                                          IdOf(start.generation()).ToString(), who.host, applied,
                                          host, step));
    }
  }
}

// ---- the coordinator ----------------------------------------------------------------------------

void Oracle::OnReign() {
  for (auto& [id, shown] : shown_) shown.fresh = true;
  strays_.clear();
}

void Oracle::OnStray(const std::string& job, uint64_t step) { strays_.emplace(job, step); }

void Oracle::OnStart(const v1::Start& start) {
  const GenerationId generation = IdOf(start.generation());
  const auto [known, fresh] = starts_.try_emplace({start.job_id(), generation}, start);
  if (fresh) ++counts_.generations;
  if (!fresh && BytesOf(known->second) != BytesOf(start)) {
    if (!MayRepeat(known->second, start)) {
      cluster_->world.Violate("rule 4: two contents of generation " + generation.ToString());
    }
    known->second = start;
  }
  if (const auto known = jobs_.find(start.job_id()); known != jobs_.end()) {
    (void)HistoryOf(known->second, start.class_maps());
  }
  const auto stored = cluster_->store.jobs().find(start.job_id());
  if (fresh && (stored == cluster_->store.jobs().end() || !HasMapsOf(start, stored->second))) {
    cluster_->world.Violate("rule 11: " + generation.ToString() +
                            " begins by class maps that are not stored");
  }
  if (start.class_maps(static_cast<int>(start.class_map())).step() > start.start_step()) {
    cluster_->world.Violate("rule 4: " + generation.ToString() + " begins before its class map");
  }
  if (!start.digest().empty()) {
    CheckState(start.job_id(), start.start_step(), start.digest(), "Start");
  }
  CheckOneRing(start);
  CheckFollowers(start);
  const auto job = jobs_.find(start.job_id());
  if (job == jobs_.end()) return;
  // Every shard has one owner: a doubled or missing one would show at the next step anyway.
  std::multiset<uint32_t> owned;
  for (const v1::RingMember& member : start.ring()) {
    owned.insert(member.shards().begin(), member.shards().end());
  }
  const std::set<uint32_t> once(owned.begin(), owned.end());
  const uint32_t shards = job->second.resolved.result().shards();
  if (owned.size() != shards || once.size() != shards) {
    cluster_->world.Violate(fmt::format("rule 4: {} assigns {} shards, {} different ones, of {}",
                                        generation.ToString(), owned.size(), once.size(), shards));
  }
}

// The first member writes checkpoints, and somebody has what they follow.
void Oracle::CheckFollowers(const v1::Start& start) {
  const bool held = std::ranges::any_of(start.ring(), &v1::RingMember::holds);
  for (const v1::RingMember& member : start.ring()) {
    if (!member.follows()) continue;
    const bool first = &member == &start.ring(0);
    if (member.shards().empty() && !member.holds() && !first && held && !start.has_restore())
      continue;
    cluster_->world.Violate(fmt::format("rule 4: {} follows in {} and has {} shards{}",
                                        member.name(), IdOf(start.generation()).ToString(),
                                        member.shards_size(), first ? ", first of all" : ""));
  }
}

void Oracle::OnSent(const std::string& worker, const v1::CoordinatorMessage& message) {
  const bool drops = message.has_attached() && !message.attached().resume();
  for (auto& [id, start] : newest_starts_) {
    if (!drops && message.release().job_id() != id) continue;
    for (v1::RingMember& member : *start.mutable_ring()) {
      if (member.name() == worker) member.clear_name();
    }
  }
}

void Oracle::CheckOneRing(const v1::Start& start) {
  newest_starts_[start.job_id()] = start;
  for (const auto& [id, other] : newest_starts_) {
    const auto shown = shown_.find(id);
    if (id == start.job_id() || shown == shown_.end() || shown->second.fresh) continue;
    if (shown->second.status.state() != v1::JOB_STATE_RUNNING) continue;
    for (const v1::RingMember& theirs : other.ring()) {
      for (const v1::RingMember& mine : start.ring()) {
        if (mine.name() != theirs.name() || mine.incarnation() != theirs.incarnation()) continue;
        cluster_->world.Violate(fmt::format("rule 8: {} is in the rings of {} and {}", mine.name(),
                                            id, start.job_id()));
      }
    }
  }
}

void Oracle::OnPublished(const coordinator::JobView& view) {
  const v1::JobStatus& status = view.status;
  Shown& shown = shown_[status.job_id()];
  const uint64_t rewinds = RewindsOf(status);
  if (!shown.fresh && status.step() < shown.status.step() && rewinds == shown.rewinds) {
    cluster_->world.Violate(fmt::format("rule 6: {} was at step {}, now at {}", status.job_id(),
                                        shown.status.step(), status.step()));
  }
  if (rewinds > shown.rewinds) counts_.rewound += rewinds - shown.rewinds;
  if (status.state() != shown.status.state() || status.reason() != shown.status.reason()) {
    cluster_->world.Log(fmt::format("= {} {} at step {}: {}", status.job_id(),
                                    v1::JobState_Name(status.state()).substr(10), status.step(),
                                    status.reason()));
  }
  const coordinator::JobEvents::List& events = view.events.all();
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->number() <= shown.events) break;
    if (event->type() != coordinator::event_type::kUnforeseen) continue;
    cluster_->world.Violate(fmt::format("rule 13: {} {}", status.job_id(), event->message()));
  }
  shown = {status, rewinds, events.empty() ? 0 : events.back().number(), false};
  if (!cluster_->store.StatesOf(status.job_id()).contains(status.state())) {
    cluster_->world.Violate(fmt::format("rule 11: {} is shown as {}, which was never stored",
                                        status.job_id(), v1::JobState_Name(status.state())));
  }
  const uint64_t checkpoint = status.checkpoint().step();
  if (status.has_checkpoint() && !cluster_->store.Has(status.job_id(), checkpoint) &&
      !strays_.contains({status.job_id(), checkpoint})) {
    cluster_->world.Violate(
        fmt::format("rule 11: {} is shown with a checkpoint of step {}, which "
                    "is not stored",
                    status.job_id(), checkpoint));
  }
  for (const v1::Event& event : view.events.all()) {
    if (!cluster_->plan.only_load || event.type() != coordinator::event_type::kWorkerLost) continue;
    cluster_->world.Violate("rule 12: load is taken for death: " + event.message());
  }
  if (status.state() == v1::JOB_STATE_SUCCEEDED) CheckSucceeded(status.job_id());
  if (status.state() == v1::JOB_STATE_FAILED) {
    if (cluster_->coordinator->NobodyKnowsWhoLied(status)) return cluster_->world.Stop();
    cluster_->world.Violate(fmt::format("rule 7: {} FAILED: {}", status.job_id(), status.reason()));
  }
}

void Oracle::CheckSucceeded(const std::string& job) {
  const uint64_t total = jobs_.at(job).resolved.result().total_steps();
  const auto folder = cluster_->store.folders.find(SimStore::PathOf(job, total));
  if (!cluster_->store.Has(job, total) || folder == cluster_->store.folders.end()) {
    cluster_->world.Violate("rule 9: " + job + " SUCCEEDED without its last checkpoint");
    return;
  }
  const auto stored = cluster_->store.jobs().find(job);
  if (stored == cluster_->store.jobs().end()) return;
  CheckStateBy(stored->second.resolved->result().class_maps(), job, total, folder->second.state,
               "the last checkpoint");
}

void Oracle::OnDecided(uint64_t work) {
  const uint64_t members = cluster_->hosts.size();
  const uint64_t most = kMostWork * cluster_->plan.jobs.size() * (members + 4);
  if (work <= most) return;
  cluster_->world.Violate(fmt::format(
      "rule 12: one event cost {} look-ups of members, of {} there are", work, members));
}

void Oracle::OnCheckpoint(const std::string& job, uint64_t step, StateHash state) {
  CheckState(job, step, DigestOf(state), "checkpoint");
}

bool Oracle::MayRepeat(const v1::Start& first, const v1::Start& again) const {
  const std::pair key(first.job_id(), IdOf(first.generation()));
  if (std::find(forgotten_.begin(), forgotten_.end(), key) == forgotten_.end()) return false;
  return std::none_of(again.ring().begin(), again.ring().end(), [&](const v1::RingMember& member) {
    return std::any_of(first.ring().begin(), first.ring().end(), [&](const v1::RingMember& other) {
      return other.name() == member.name() && other.incarnation() == member.incarnation();
    });
  });
}

void Oracle::OnStoreRestored() {
  for (const auto& [key, start] : starts_) forgotten_.push_back(key);
  shown_.clear();
  newest_starts_.clear();
  cluster_->world.Log("the store is an older copy now");
}

std::optional<v1::JobStatus> Oracle::StatusOf(const std::string& job) const {
  const auto shown = shown_.find(job);
  if (shown == shown_.end()) return std::nullopt;
  return shown->second.status;
}

}  // namespace ringmaster::sim
