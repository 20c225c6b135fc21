#include "coordinator/logic/run/state_custody.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/coordinator/logic/fixtures.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::milliseconds;
using Where = StateCustody::Where;

const Options kCustodyOptions;
const auto kWhoever = [](const Member&) { return true; };
const auto kNobody = [](const Member&) { return false; };

Member& AddHolder(Membership& members, const std::string& name, uint64_t applied) {
  Member member;
  member.attach.set_name(name);
  member.role = Role::kReady;
  member.holding.applied = member.applied = applied;
  return members.Add(std::move(member));
}

CheckpointFound Found(uint64_t step, const std::string& of = "j0001") {
  CheckpointFound event;
  event.job_id = "j0001";
  event.found.emplace().job_id = of;
  event.found->ref.set_step(step);
  event.found->ref.set_sha256("m");
  event.digest = "d";
  return event;
}

v1::CheckpointRef Ref(uint64_t step) {
  v1::CheckpointRef ref;
  ref.set_step(step);
  ref.set_sha256("m");
  return ref;
}

TEST_CASE(
    "StateCustody: one step less than a checkpoint has is enough, less than committed is not") {
  StateCustody custody(kCustodyOptions);
  Membership members;
  AddHolder(members, "a", 6);
  CHECK(custody.IsHere(members, 6, kWhoever));
  CHECK_FALSE(custody.IsHere(members, 7, kWhoever));
  CHECK_FALSE(custody.IsHere(members, 6, kNobody));
  custody.OnKept(Ref(7), "");
  CHECK(custody.NeededStep(0) == 6);
  CHECK(custody.IsHere(members, 0, kWhoever));
  custody.OnKept(Ref(8), "");
  CHECK_FALSE(custody.IsHere(members, 0, kWhoever));
  custody.OnKept(Ref(5), "");  // an older one changes nothing
  CHECK(custody.kept_step() == 8);
  custody.ForgetKept(Ref(5));
  CHECK(custody.kept_step() == 5);
}

TEST_CASE("StateCustody: a lost holder is waited for, until its time is over or nobody is left") {
  StateCustody custody(kCustodyOptions);
  Membership members;
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(0)) == Where::kGone);  // nobody is known
  custody.OnRing();
  custody.Lose("a", "1");
  custody.Lose("b", "");
  CHECK(custody.Misses("b"));
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(100)) == Where::kMayReturn);
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(2'099)) == Where::kMayReturn);
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(2'100)) == Where::kGone);
  custody.Excuse(milliseconds(500));
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(2'100)) == Where::kMayReturn);
  CHECK(custody.Settle("a"));
  CHECK_FALSE(custody.Settle("a"));
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(2'100)) == Where::kMayReturn);
  CHECK(custody.Settle("b"));
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(2'100)) == Where::kGone);
  custody.Lose("a", "1");
  custody.WaitUntil(milliseconds(1'000));
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(1'000)) == Where::kGone);
}

TEST_CASE("StateCustody: whoever is back with it ends the wait, and the next one begins anew") {
  StateCustody custody(kCustodyOptions);
  Membership members;
  custody.Lose("a", "1");
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(0)) == Where::kMayReturn);
  AddHolder(members, "a", 4);
  CHECK(custody.Judge(members, 4, kWhoever, AtMs(5'000)) == Where::kHere);
  // Not heard now, it may be heard again; one that leaves does not come back.
  CHECK(custody.Judge(members, 4, kNobody, AtMs(6'000)) == Where::kMayReturn);
  (void)custody.Settle("a");
  CHECK(custody.Judge(members, 4, kNobody, AtMs(7'999)) == Where::kMayReturn);
  members.Find("a")->leaving = true;
  CHECK(custody.Judge(members, 4, kNobody, AtMs(7'999)) == Where::kGone);
}

TEST_CASE("StateCustody: a search that ended settles it, with a checkpoint or without one") {
  StateCustody custody(kCustodyOptions);
  Membership members;
  AddHolder(members, "a", 3);
  custody.Search();
  CHECK(custody.searches());
  CHECK(custody.TakeSearch());
  CHECK_FALSE(custody.TakeSearch());
  custody.OnFound(Found(8), "j0001");
  CHECK(custody.Judge(members, 9, kWhoever, AtMs(0)) == Where::kHere);
  CHECK(custody.kept_step() == 8);
  CHECK(custody.StepFor(3) == 8);
  CHECK(custody.Restores(3));
  CHECK(custody.StepFor(8) == 8);  // somebody has it: it is not fetched from the store
  CHECK_FALSE(custody.Restores(8));
  custody.OnKept(Ref(9), "");  // a newer one came: the one that was found may go
  CHECK(custody.found() == nullptr);
  CHECK_FALSE(custody.settles_for_less());
  custody.OnFound({"j0001", {}, "", {}}, "j0001");
  CHECK(custody.settles_for_less());
  CHECK(custody.kept_step() == 0);
  CHECK(custody.StepFor(3) == 3);
}

TEST_CASE("StateCustody: another job's checkpoint is none of this job") {
  StateCustody custody(kCustodyOptions);
  custody.OnFound(Found(8, "j0000"), "j0001");
  CHECK(custody.kept_step() == 0);
  CHECK(custody.StepFor(0) == 8);
}

TEST_CASE("StateCustody: three times another checkpoint is looked for in place of one") {
  StateCustody custody(kCustodyOptions);
  for (int i = 0; i < 3; ++i) {
    custody.OnFound(Found(8), "j0001");
    CHECK(custody.FailRestore());
    CHECK(custody.found() == nullptr);
  }
  custody.OnFound(Found(8), "j0001");
  CHECK_FALSE(custody.FailRestore());
}

TEST_CASE("StateCustody: who leaves saves what nobody who stays has, and no checkpoint") {
  StateCustody custody(kCustodyOptions);
  Membership members;
  AddHolder(members, "a", 5).leaving = true;
  AddHolder(members, "b", 6).leaving = true;
  AddHolder(members, "c", 4);
  const auto leaver = custody.FindLeaver(members, 5, kWhoever);
  REQUIRE(leaver);
  CHECK(leaver->holder->name() == "b");  // the most
  CHECK_FALSE(leaver->waits);
  CHECK(custody.FindLeaver(members, 5, kNobody)->waits);
  CHECK_FALSE(custody.FindLeaver(members, 4, kWhoever));  // c has it, and stays
  custody.OnKept(Ref(6), "");
  CHECK_FALSE(custody.FindLeaver(members, 5, kWhoever));
  // What everybody begins with is nothing to save.
  Membership first;
  AddHolder(first, "a", 0).leaving = true;
  CHECK_FALSE(StateCustody(kCustodyOptions).FindLeaver(first, 0, kWhoever));
}

TEST_CASE("StateCustody: a save goes on until it is needless, with longer and longer pauses") {
  StateCustody custody(kCustodyOptions);
  Membership members;
  AddHolder(members, "a", 5).leaving = true;
  custody.BeginSave("a");
  CHECK(custody.MustSave(members, 5, kNobody));
  CHECK_FALSE(custody.MustSave(members, 5, kWhoever));  // one who may be in the next ring has it
  CHECK(custody.FailSave().first);
  custody.BeginSave("a");
  const StateCustody::Pause second = custody.FailSave();
  CHECK_FALSE(second.first);
  CHECK(second.lasts == milliseconds(10'000));
  for (int i = 0; i < 10; ++i) (void)custody.FailSave();
  CHECK(custody.FailSave().lasts == milliseconds(300'000));
  custody.BeginSave("b");  // another one
  CHECK(custody.FailSave().lasts == milliseconds(5'000));
  custody.BeginSave("a");
  members.Find("a")->leaving = false;
  CHECK_FALSE(custody.MustSave(members, 5, kNobody));
  members.Remove("a");
  CHECK_FALSE(custody.MustSave(members, 5, kNobody));
}

TEST_CASE("StateCustody: the last checkpoint must be there, and be what a member ends with") {
  StateCustody custody(kCustodyOptions);
  CHECK(custody.HasLast(0));
  CHECK_FALSE(custody.HasLast(10));
  custody.set_kept_step(10);  // known from before a restart, but not which one it is
  CHECK_FALSE(custody.HasLast(10));
  custody.OnKept(Ref(10), "64");  // hex of d
  CHECK(custody.HasLast(10));
  Membership members;
  Member& member = AddHolder(members, "a", 10);
  member.finished.emplace().set_digest("d");
  CHECK(custody.CheckLast(member).ok());
  member.finished->set_manifest_sha256("m");
  CHECK(custody.CheckLast(member).ok());
  member.finished->set_manifest_sha256("another");
  CHECK(custody.CheckLast(member).cause == Cause::kCheckpointDiffers);
  member.finished->clear_manifest_sha256();
  member.finished->set_digest("e");
  CHECK(custody.CheckLast(member).cause == Cause::kCheckpointDiffers);
}

}  // namespace
}  // namespace ringmaster::coordinator
