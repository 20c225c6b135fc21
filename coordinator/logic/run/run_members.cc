// Who comes and who goes: workers that join, come back after a restart, are lost, let go, evicted,
// or leave; and which numerics classes share the job: its class maps, and who computes what by
// them.
#include <fmt/ranges.h>
#include <algorithm>
#include <utility>

#include "common/job/class_map.h"
#include "common/job/shards.h"
#include "common/planted_bug.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {

Member& Run::Add(const Worker& worker, Role role, Now now) {
  Member member;
  member.attach = worker.attach;
  member.class_name = worker.class_name;
  member.session = worker.session;
  member.role = role;
  member.since = now.steady;
  member.last_heard = now.heard;
  member.leaving = worker.draining;
  return members_.Add(std::move(member));
}

void Run::Join(const Worker& worker, Now now, Actions& actions) {
  SendInspect(Add(worker, Role::kInspecting, now), actions);
}

bool Run::MayReturn(const v1::Attach& attach) const {
  if (!started_ || phase_ == Phase::kStopping || phase_ == Phase::kDone) return false;
  if (attach.applied() > resolved_->result().total_steps()) return false;
  if (IsSpoilt(FromProto(attach.generation()), attach.applied())) return false;
  if (!job::LedAlike(attach.class_maps(), resolved_->result().class_maps(), attach.applied())) {
    return false;
  }
  if (attach.known_shard_sha256_size() != static_cast<int>(attach.cores())) return false;
  const v1::MappedClass* its = job::FindClass(map(), attach.numerics_class());
  const v1::KnownShard* wanted = its == nullptr ? nullptr : KnownShardOf(its->class_());
  if (wanted == nullptr) return false;
  const auto& known = attach.known_shard_sha256();
  return std::all_of(known.begin(), known.end(),
                     [&](const std::string& core) { return core == wanted->sha256(); });
}

void Run::Return(const Worker& worker, Now now, Actions& actions) {
  const v1::Attach& attach = worker.attach;
  // The term was raised since: whoever obeyed the new one obeys no fence of the old one.
  if (fence_.under_way() && fence_.generation().term < generations_.term()) {
    BeginFence(fence_.when(), "the term was raised", now, actions);
  }
  Member& member = Add(worker, Role::kReady, now);
  member.holding = {FromProto(attach.generation()), attach.applied(), attach.digest(), {}, false};
  member.applied = attach.applied();
  member.ran = member.holding.started;
  member.adds = true;
  member.class_maps = std::make_shared<const job::ClassMaps>(attach.class_maps());
  (void)custody_.Settle(attach.name());
  if (phase_ == Phase::kAdopting) {
    members_.Recognize(member.name(), member.incarnation());
    member.fence = generation_;
    if (InRing(member.name()) && member.holding.started != generation_) {
      deadline_ = std::min(deadline_, now.steady + options_.settle);
    }
    return;
  }
  // It may still run an old generation, and shows that it lives by acknowledging a fence: the one
  // that is under way, or one of its own.
  Tell(event_type::kWorkerReturned, Severity::kInfo,
       fmt::format("{} attached again, with the state of step {}", member.called(),
                   attach.applied()),
       attach.name());
  if (fence_.under_way()) {
    fence_.Include(member, InRing(member.name()) && !Barred(attach, now));
    SendFence(member, fence_.when(), actions);
  } else {
    Fence::Owe(member, generations_.Next());
    SendFence(member, FenceWhen::kNow, actions);
  }
}

void Run::OnStranger(const v1::Attach& attach, Now now) {
  if (!custody_.Settle(attach.name()) || phase_ != Phase::kAdopting) return;
  deadline_ = std::min(deadline_, now.steady + options_.settle);
}

void Run::OnLost(const std::string& worker, const std::string& why, uint64_t applied) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  if (phase_ == Phase::kStopping) return Remove(worker);
  CatchUp();
  const uint64_t step = std::max({applied, committed_, member->applied});
  last_loss_ = fmt::format("{} was lost {}: {}", member->called(),
                           coordinator::At(step, PhaseOf(*member)), why);
  if (!member->lost_told) {
    Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, worker);
  }
  Remove(worker);
}

void Run::Remove(const std::string& worker) {
  CatchUp();
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const uint64_t has = std::max(member->holding.applied, member->applied);
  if (started_ && member->role == Role::kReady && has >= committed_) {
    custody_.Lose(worker, member->incarnation());
  }
  phases_.Remove(worker);
  if (member->finished) --finished_;
  members_.Remove(worker);
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::LetGo(std::string worker, bool evicted, const std::string& reason) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  if (!RING_PLANTED(kForgetsRelease)) {
    departures_.push_back({member->session, evicted, member->data_differs, reason});
  }
  Remove(worker);
  if (!evicted) (void)custody_.Settle(worker);  // it drops what it has
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::Evict(std::string worker, const std::string& why, Now now) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const auto bar = readmission_.Bar(worker, member->incarnation(), now);
  last_loss_ = fmt::format("{} was left out {}: {}; it may join again after {}", member->called(),
                           coordinator::At(committed_, PhaseOf(*member)), why,
                           FormatSeconds(std::chrono::duration<double>(bar).count()));
  Tell(event_type::kWorkerLost, Severity::kWarning, last_loss_, worker);
  fence_.Forget(worker);
  LetGo(worker, true, why);
}

// By value: it may be the name inside what is removed.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Run::RefuseJoiner(std::string worker, const std::string& why, Now now) {
  const Member* member = Find(worker);
  if (member == nullptr) return;
  const auto bar = readmission_.Bar(worker, member->incarnation(), now);
  Tell(event_type::kWorkerRefused, Severity::kWarning,
       fmt::format("{} cannot take part: {}; it is tried again after {}", member->called(), why,
                   FormatSeconds(std::chrono::duration<double>(bar).count())),
       worker);
  LetGo(worker, false, why);
}

void Run::Leave(const std::string& worker, const std::string& why) {
  Member* member = Find(worker);
  if (member == nullptr || member->leaving) return;
  member->leaving = true;
  member->leaves_why = why;
  if (started_) return;  // at a boundary
  last_loss_ = fmt::format("{} left: {}", member->called(), why);
  Tell(event_type::kWorkerLeft, Severity::kInfo, last_loss_, worker);
  LetGo(worker, false, why);
}

void Run::Stay(const std::string& worker) {
  Member* member = Find(worker);
  if (member != nullptr) member->leaving = false;
}

size_t Run::room() const {
  const bool open = phase_ == Phase::kFencing || phase_ == Phase::kRunning ||
                    phase_ == Phase::kWaiting || phase_ == Phase::kSearching;
  if (!open || !started_ || AnyFinished()) return 0;
  const auto stays = static_cast<size_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& m) { return !m.leaving; }));
  return most_ - std::min(most_, stays);
}

std::map<std::string, size_t> Run::rooms() const {
  std::map<std::string, size_t> rooms;
  for (const v1::MappedClass& each : map().classes()) rooms[each.class_()] = each.shards();
  for (const Member& member : members_) {
    if (size_t& room = rooms[member.class_name]; !member.leaving && room > 0) --room;
  }
  return rooms;
}

// ---- classes ------------------------------------------------------------------------------------

namespace {

// `cpu-avx2-04bd77e1 computes 2 shards, cpu-avx512_core-9a31f02c computes 6`
std::string WordsOf(const v1::ClassMap& map) {
  std::string text;
  for (const v1::MappedClass& each : map.classes()) {
    text += text.empty() ? fmt::format("{} computes {} {}", each.class_(), each.shards(),
                                       each.shards() == 1 ? "shard" : "shards")
                         : fmt::format(", {} computes {}", each.class_(), each.shards());
  }
  return text;
}

}  // namespace

const v1::ClassMap& Run::map() const { return resolved_->result().class_maps(map_); }

bool Run::LedElsewhere(const Member& member, uint64_t step) const {
  return member.class_maps != nullptr &&
         !job::LedAlike(*member.class_maps, resolved_->result().class_maps(), step);
}

// Of a generation that goes on with S(step). What a job like another one will need is known; of any
// other one maps that began after that step are of states that are gone.
void Run::ChooseMap(uint64_t step, bool evaluated) {
  auto& maps = *resolved_->mutable_result()->mutable_class_maps();
  while (!repeats() && maps.size() > 1 && maps.rbegin()->step() > step) {
    maps_changed_ = maps.rbegin()->step();
    maps.RemoveLast();
  }
  map_ = repeats() ? job::MapOf(resolved_->result(), step, evaluated) : maps.size() - 1;
}

// Members have ended their runs where they go on by another map. In a ring that is being connected
// no run has begun: it would be given up with nothing evaluated, and begin by the same map for
// ever; so would one that evaluates for longer than a fence waits for its boundary.
bool Run::NextMapBegins() const {
  const bool more = resolved_ && map_ + 1 < resolved_->result().class_maps_size();
  if (!more || !RingJoined()) return false;
  const v1::ResultSpec& spec = resolved_->result();
  const v1::ClassMap& next = spec.class_maps(map_ + 1);
  const v1::DataUse& use = spec.data_use();
  const bool any_set = use.test_samples() > 0 || use.validation_samples() > 0;
  const bool evaluates =
      any_set && !next.before_evaluation() &&
      job::EvaluatesAfter(next.step(), spec.evaluation_steps(), spec.total_steps());
  const auto evaluated = [&next](const v1::Metric& metric) {
    return metric.split() != v1::SAMPLE_SPLIT_TRAIN && metric.step() == next.step();
  };
  return std::ranges::any_of(members_, [&](const Member& member) {
    return member.applied >= next.step() &&
           (!evaluates || std::ranges::any_of(member.progress.metrics(), evaluated));
  });
}

const v1::KnownShard* Run::KnownShardOf(const std::string& class_name) const {
  const auto found =
      std::ranges::find(resolved_->known_shards(), class_name, &v1::KnownShard::class_);
  return found == resolved_->known_shards().end() ? nullptr : &*found;
}

bool Run::Holds(const Member& member, uint64_t step) const {
  if (member.holding.applied != step) return false;
  if (step > 0 || !ClassesDraw()) return true;
  const v1::KnownShard* const drawn = KnownShardOf(map().classes(0).class_());
  return drawn == nullptr || drawn->digest() == member.holding.digest;
}

bool Run::MayFollow(const Member& member, uint64_t step) const {
  return member.prepared && member.prepared->follows() && !Holds(member, step);
}

// ---- the first ring -----------------------------------------------------------------------------

// What the user wrote, of the classes of the workers that are here; else, until they are measured,
// by their cores.
Status Run::MakeFirstMap() {
  v1::ResultSpec& result = *resolved_->mutable_result();
  const v1::WorkerRange& workers = spec_.workers();
  if (!mixes_) return absl::OkStatus();  // the one class that it was resolved with
  map_due_ = workers.classes().empty();
  if (map_due_) {
    *result.mutable_class_maps(0) =
        job::MakeClassMap(shards_, SpeedsOf(MemberNames(), Measured::kNo), nullptr);
    return absl::OkStatus();
  }
  v1::ClassMap map;
  map.set_before_evaluation(true);
  std::map<std::string, uint32_t> wanted;
  for (const v1::ClassShards& each : workers.classes()) wanted[each.class_()] = each.shards();
  for (const auto& [name, shards] : wanted) {
    const auto member = std::ranges::find(members_, name, &Member::class_name);
    if (member == members_.end()) {
      return FailedPrecondition("no worker of class {} is there any more", name);
    }
    v1::MappedClass& each = *map.add_classes();
    each.set_class_(name);
    *each.mutable_numerics() = member->attach.numerics_class();
    each.set_shards(shards);
  }
  *result.mutable_class_maps(0) = std::move(map);
  return absl::OkStatus();
}

// By measured speed. True: it is another one than that with which the job was prepared.
bool Run::MeasureFirstMap() {
  std::vector<std::string> left_out;
  const std::vector<job::ClassSpeed> speeds = SpeedsOf(MemberNames(), Measured::kYes);
  v1::ClassMap map = job::MakeClassMap(shards_, speeds, &left_out);
  const auto stay = std::ranges::count_if(members_, [&](const Member& member) {
    return std::ranges::find(left_out, member.class_name) == left_out.end();
  });
  if (static_cast<size_t>(stay) < std::max<size_t>(min_, 1)) {  // that many were asked for
    left_out.clear();
    map = job::MakeClassMap(shards_, speeds, nullptr);
  }
  TellMap(map, left_out);
  LetClassesGo(left_out);
  v1::ClassMap& first = *resolved_->mutable_result()->mutable_class_maps(0);
  const bool another = job::TextOf(map) != job::TextOf(first);
  first = std::move(map);
  return another;
}

std::vector<std::string> Run::MemberNames() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name());
  return names;
}

// Of the classes of these members. Of a class that was not measured, the seconds are 1.
std::vector<job::ClassSpeed> Run::SpeedsOf(const std::vector<std::string>& names,
                                           Measured measured) const {
  std::map<std::string, job::ClassSpeed> speeds;
  for (const std::string& name : names) {
    const Member& member = *Find(name);
    const auto [place, fresh] = speeds.try_emplace(member.class_name);
    job::ClassSpeed& speed = place->second;
    if (fresh) {
      speed.numerics = member.attach.numerics_class();
      speed.cores = 0;
      const v1::KnownShard* known =
          measured == Measured::kYes ? KnownShardOf(member.class_name) : nullptr;
      if (known != nullptr && known->seconds() > 0) speed.seconds = known->seconds();
    }
    speed.cores += member.attach.cores();
  }
  std::vector<job::ClassSpeed> all;
  for (auto& [name, speed] : speeds) all.push_back(std::move(speed));
  return all;
}

void Run::TellMap(const v1::ClassMap& map, const std::vector<std::string>& left_out) {
  std::string text = fmt::format("from step {} on {}", map.step(), WordsOf(map));
  if (!left_out.empty()) {
    text += fmt::format("; {} left out: less than one of {} shards would be its part",
                        fmt::join(left_out, " and "), shards_);
  }
  Tell(event_type::kClassMap, Severity::kInfo, std::move(text), kJobSubject);
}

void Run::LetClassesGo(const std::vector<std::string>& left_out) {
  for (const std::string& name : MemberNames()) {
    const Member& member = *Find(name);
    if (std::ranges::find(left_out, member.class_name) == left_out.end()) continue;
    const std::string why =
        fmt::format("its class {} is not in the class map (CLASS_NOT_IN_MAP)", member.class_name);
    last_loss_ = fmt::format("{} was left out: {}", member.called(), why);
    left_.insert(name);
    LetGo(name, false, why);
  }
}

// ---- every ring ---------------------------------------------------------------------------------

// Classes of the map of which none of these members is.
std::vector<std::string> Run::MissingClasses(const std::vector<std::string>& names) const {
  std::vector<std::string> missing;
  if (!resolved_) return missing;
  for (const v1::MappedClass& each : map().classes()) {
    const bool there = std::ranges::any_of(
        names, [&](const std::string& name) { return Find(name)->class_name == each.class_(); });
    if (!there) missing.push_back(each.class_());
  }
  return missing;
}

bool Run::Enough(const std::vector<std::string>& names) const {
  if (names.size() < std::max<size_t>(min_, 1)) return false;
  return MayFallBack() || MissingClasses(names).empty();
}

std::vector<std::string> Run::ReadyNames(Now now) const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (Eligible(member, now)) names.push_back(member.name());
  }
  return names;
}

// Those of these members that a ring has room for, in their order: one that holds the most, one of
// each class, then the first ones.
std::vector<std::string> Run::ChooseSeats(const std::vector<std::string>& names) const {
  const uint64_t highest = members_.HighestApplied(names);
  std::map<std::string, size_t> rooms;
  for (const v1::MappedClass& each : map().classes()) rooms[each.class_()] = each.shards();
  std::set<std::string> chosen, classes;
  const auto choose = [&](const std::string& name) {
    size_t& room = rooms[Find(name)->class_name];
    if (room == 0 || chosen.size() >= most_ || !chosen.insert(name).second) return false;
    --room;
    classes.insert(Find(name)->class_name);
    return true;
  };
  for (const std::string& name : names) {
    if (Holds(*Find(name), highest) && choose(name)) break;
  }
  for (const std::string& name : names) {
    if (!classes.contains(Find(name)->class_name)) (void)choose(name);
  }
  for (const std::string& name : names) (void)choose(name);
  std::vector<std::string> seats;
  for (const std::string& name : names) {
    if (chosen.contains(name)) seats.push_back(name);
  }
  return seats;
}

// A class of the map has no worker any more, and others are to take its shards: they get another
// map from step `step` on.
void Run::FallBack(std::vector<std::string>& names, uint64_t step, bool evaluated) {
  std::vector<std::string> left_out;
  const std::vector<job::ClassSpeed> speeds = SpeedsOf(names, Measured::kYes);
  v1::ClassMap next = job::MakeClassMap(shards_, speeds, &left_out);
  const auto without = [&](const std::string& name) {
    return std::ranges::find(left_out, Find(name)->class_name) != left_out.end();
  };
  std::vector<std::string> rest;
  std::ranges::remove_copy_if(names, std::back_inserter(rest), without);
  if (!Enough(rest) || members_.HighestApplied(rest) < members_.HighestApplied(names)) {
    left_out.clear();
    rest = names;
    next = job::MakeClassMap(shards_, speeds, nullptr);
  }
  next.set_step(step);
  next.set_before_evaluation(!evaluated);
  auto& maps = *resolved_->mutable_result()->mutable_class_maps();
  // One that nothing was computed by: its step was never ended, nor what was to be evaluated
  // before.
  const v1::ClassMap& newest = *maps.rbegin();
  const bool unused = newest.step() == step && !(evaluated && newest.before_evaluation());
  if (maps.size() > 1 && unused) maps.RemoveLast();
  TellMap(next, left_out);
  *maps.Add() = std::move(next);
  map_ = maps.size() - 1;
  maps_changed_ = step;
  LetClassesGo(left_out);
  names = std::move(rest);
}

}  // namespace ringmaster::coordinator
