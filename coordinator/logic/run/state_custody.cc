#include "coordinator/logic/run/state_custody.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/sha256.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMaxFailedRestores = 3;

uint64_t KnownStep(const Member& member) {
  return std::max(member.holding.applied, member.applied);
}

}  // namespace

uint64_t StateCustody::NeededStep(uint64_t committed) const {
  return std::max(committed, kept_step_ - std::min<uint64_t>(kept_step_, 1));
}

bool StateCustody::Holds(const Member& member, uint64_t committed) const {
  return member.role == Role::kReady && KnownStep(member) >= NeededStep(committed);
}

bool StateCustody::IsHere(const Membership& members, uint64_t committed, const Test& may) const {
  return std::ranges::any_of(members, [&](const Member& member) {
    return may(member) && member.holding.applied >= NeededStep(committed);
  });
}

void StateCustody::OnRing() {
  lost_.clear();
  deadline_.reset();
}

StateCustody::Where StateCustody::Judge(const Membership& members, uint64_t committed,
                                        const Test& may, Now now) {
  if (restore_ || IsHere(members, committed, may)) {
    deadline_.reset();
    return Where::kHere;
  }
  if (!deadline_) deadline_ = now.steady + options_.holder_wait;
  const auto known = [&](const Member& member) {
    return !member.leaving && Holds(member, committed);
  };
  const bool may_return = !lost_.empty() || std::ranges::any_of(members, known);
  return may_return && now.steady < *deadline_ ? Where::kMayReturn : Where::kGone;
}

std::optional<StateCustody::Leaver> StateCustody::FindLeaver(const Membership& members,
                                                             uint64_t committed,
                                                             const Test& answers) const {
  const Member *holder = nullptr, *unheard = nullptr;
  for (const Member& member : members) {
    if (!Holds(member, committed)) continue;
    if (!member.leaving && answers(member)) return std::nullopt;
    // What everybody begins with is nothing to save.
    if (!member.leaving || KnownStep(member) <= kept_step_) continue;
    if (!answers(member)) {
      unheard = &member;
    } else if (holder == nullptr || KnownStep(member) > holder->holding.applied) {
      holder = &member;
    }
  }
  if (holder != nullptr) return Leaver{holder, false};
  if (unheard != nullptr) return Leaver{unheard, true};
  return std::nullopt;
}

void StateCustody::BeginSave(const std::string& worker) {
  if (saver_ != worker) save_pause_ = {};
  saver_ = worker;
}

bool StateCustody::MustSave(const Membership& members, uint64_t committed, const Test& may) const {
  const Member* saver = members.Find(saver_);
  if (saver == nullptr || !saver->leaving) return false;
  return std::ranges::none_of(
      members, [&](const Member& member) { return may(member) && Holds(member, committed); });
}

StateCustody::Pause StateCustody::FailSave() {
  const bool first = save_pause_.count() == 0;
  save_pause_ = std::clamp(2 * save_pause_, options_.ask_again, options_.ask_again_most);
  return {save_pause_, first};
}

void StateCustody::OnKept(const v1::CheckpointRef& ref, const std::string& digest) {
  if (ref.step() >= kept_step_) {
    kept_step_ = ref.step();
    kept_manifest_ = ref.sha256();
    kept_digest_ = digest;
  }
  // The one that was found may go now.
  if (found() != nullptr && found()->ref.step() < ref.step()) restore_.reset();
}

void StateCustody::ForgetKept(const v1::CheckpointRef& newest) {
  kept_step_ = newest.step();
  kept_manifest_ = newest.sha256();
  kept_digest_.clear();
}

Fault StateCustody::CheckLast(const Member& member) const {
  const v1::JobFinished& end = *member.finished;
  if (!kept_digest_.empty() && Hex(end.digest()) != kept_digest_) {
    return {Cause::kCheckpointDiffers,
            fmt::format("the last checkpoint holds the state with digest {}, {} ends with {}",
                        kept_digest_, member.called(), Hex(end.digest())),
            member.name()};
  }
  if (!end.manifest_sha256().empty() && end.manifest_sha256() != kept_manifest_) {
    return {Cause::kCheckpointDiffers,
            fmt::format("{} wrote a last checkpoint with manifest {}, but {} arrived",
                        member.called(), end.manifest_sha256(), kept_manifest_),
            member.name()};
  }
  return {};
}

void StateCustody::OnFound(const CheckpointFound& event, const std::string& job_id) {
  restore_ = Restore{event.found, event.digest};
  const bool own = event.found && event.found->job_id == job_id;
  kept_step_ = own ? event.found->ref.step() : 0;
  kept_manifest_ = own ? event.found->ref.sha256() : "";
  kept_digest_.clear();
}

bool StateCustody::FailRestore() {
  if (++failed_restores_ > kMaxFailedRestores) return false;
  restore_.reset();
  return true;
}

uint64_t StateCustody::StepFor(uint64_t highest) const {
  return found() == nullptr ? highest : std::max(highest, found()->ref.step());
}

}  // namespace ringmaster::coordinator
