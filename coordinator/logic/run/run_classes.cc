// Which numerics classes share the job: its class maps, and who computes what by them.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/job/class_map.h"
#include "common/job/shards.h"
#include "coordinator/logic/run/run.h"

namespace ringmaster::coordinator {
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

// Of a generation that goes on with S(step). What a job like another one will need is known; of any
// other one maps that began after that step are of a state that is gone.
void Run::ChooseMap(uint64_t step, bool evaluated) {
  auto& maps = *resolved_->mutable_result()->mutable_class_maps();
  while (!repeats() && maps.size() > 1 && maps.rbegin()->step() > step) {
    maps.RemoveLast();
    maps_changed_ = true;
  }
  map_ = repeats() ? job::MapOf(resolved_->result(), step, evaluated) : maps.size() - 1;
}

// Members have ended their runs where they go on by another map. In a ring that is being connected
// no run has begun: it would be given up with nothing evaluated, and begin by the same map for
// ever; so would one that evaluates for longer than a fence waits for its boundary.
bool Run::NextMapBegins() const {
  if (!resolved_ || map_ + 1 >= resolved_->result().class_maps_size() || !RingJoined())
    return false;
  const v1::ResultSpec& spec = resolved_->result();
  const v1::ClassMap& next = spec.class_maps(map_ + 1);
  const bool evaluates =
      !next.before_evaluation() &&
      job::EvaluatesAfter(next.step(), spec.evaluation_steps(), spec.total_steps());
  return std::ranges::any_of(members_, [&](const Member& member) {
    return member.applied >= next.step() &&
           (!evaluates || std::ranges::any_of(member.progress.metrics(), [&](const auto& metric) {
             return metric.split() != v1::SAMPLE_SPLIT_TRAIN && metric.step() == next.step();
           }));
  });
}

const v1::KnownShard* Run::KnownShardOf(const std::string& class_name) const {
  const auto found =
      std::ranges::find(resolved_->known_shards(), class_name, &v1::KnownShard::class_);
  return found == resolved_->known_shards().end() ? nullptr : &*found;
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
  const bool another = map.SerializeAsString() != first.SerializeAsString();
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
  const uint64_t highest = HighestApplied(names);
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
    if (Find(name)->holding.applied == highest && choose(name)) break;
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
  if (!Enough(rest) || HighestApplied(rest) < HighestApplied(names)) {
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
  maps_changed_ = true;
  LetClassesGo(left_out);
  names = std::move(rest);
}

}  // namespace ringmaster::coordinator
