#include "coordinator/logic/run/fence.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/coordinator/logic/fixtures.h"

namespace ringmaster::coordinator {
namespace {

using Names = std::vector<std::string>;
using std::chrono::milliseconds;

const Options kFenceOptions;
const auto kAnybody = [](const Member&) { return true; };

Now Heard(int64_t ms) {
  Now now = AtMs(ms);
  now.heard = now.steady;
  return now;
}

// Ready, heard at 0, in a ring in this order; sessions count up.
Membership MakeRing(const Names& names) {
  Membership members;
  std::vector<Place> ring;
  for (const std::string& name : names) {
    Member member;
    member.attach.set_name(name);
    member.role = Role::kReady;
    member.session = SessionId{members.size() + 1};
    members.Add(std::move(member));
    ring.push_back({name, "", "", {}});
  }
  members.SetRing(std::move(ring));
  return members;
}

void Answer(Membership& members, const std::string& name, uint64_t applied) {
  v1::FenceAck said;
  said.set_applied(applied);
  Fence::Acknowledge(*members.Find(name), said);
}

// Begun at 0 because a accuses b; everybody answers with step 7.
Fence Accused(Membership& members, int64_t ms = 0) {
  Fence fence(kFenceOptions);
  fence.Accuse("a", "b");
  (void)fence.Begin({1, 2}, FenceWhen::kNow, "a suspects b", members, kAnybody, Heard(ms));
  for (const Member& member : members) Answer(members, member.name(), 7);
  return fence;
}

TEST_CASE(
    "Fence: whoever is ready is fenced, who owed nothing and is heard is "
    "waited for") {
  Membership members = MakeRing({"a", "b", "c", "d"});
  members.Find("b")->last_heard = milliseconds(-501);  // silent for longer than 500 ms
  members.Find("c")->owes = true;
  members.Find("d")->role = Role::kPreparing;
  Fence fence(kFenceOptions);
  const auto fenced = fence.Begin({1, 2}, FenceWhen::kNow, "x", members, kAnybody, Heard(0));
  REQUIRE(fenced.size() == 3);
  CHECK(fence.Unanswered(members) == Names{"a"});
  for (const Member* const member : fenced) {
    CHECK(member->owes);
    CHECK(member->fence == GenerationId{1, 2});
  }
  CHECK_FALSE(members.Find("d")->owes);
  CHECK_FALSE(fence.Over(members, Heard(0)));
  Answer(members, "a", 7);
  CHECK(fence.Over(members, Heard(0)));
}

TEST_CASE("Fence: who may not be in the next ring is not fenced") {
  Membership members = MakeRing({"a", "b"});
  Fence fence(kFenceOptions);
  const auto fenced = fence.Begin(
      {1, 2}, FenceWhen::kNow, "x", members,
      [](const Member& member) { return member.name() != "b"; }, Heard(0));
  REQUIRE(fenced.size() == 1);
  CHECK_FALSE(members.Find("b")->owes);
}

TEST_CASE(
    "Fence: one that replaces another waits for the same, and keeps what "
    "was noticed first") {
  Membership members = MakeRing({"a", "b"});
  Fence fence(kFenceOptions);
  (void)fence.Begin({1, 2}, FenceWhen::kAtBoundary, "c joins", members, kAnybody, Heard(10));
  (void)fence.Begin({1, 3}, FenceWhen::kNow, "b was lost", members, kAnybody, Heard(40));
  CHECK(fence.reason() == "c joins");
  CHECK(fence.lasted(Heard(50)) == milliseconds(40));
  CHECK(fence.generation() == GenerationId{1, 3});
  CHECK_FALSE(fence.at_boundary());
  CHECK(fence.Unanswered(members) == Names{"a", "b"});
  fence.End();
  CHECK_FALSE(fence.under_way());
  // They still owe: a fence of its own does not wait for them.
  (void)fence.Begin({1, 4}, FenceWhen::kNow, "d was lost", members, kAnybody, Heard(60));
  CHECK(fence.reason() == "d was lost");
  CHECK(fence.Unanswered(members).empty());
}

TEST_CASE("Fence: who is gone, silent or too late is not waited for") {
  Membership members = MakeRing({"a", "b"});
  Fence fence(kFenceOptions);
  (void)fence.Begin({1, 2}, FenceWhen::kNow, "x", members, kAnybody, Heard(0));
  Answer(members, "a", 7);
  CHECK_FALSE(fence.Over(members, Heard(500)));
  CHECK(fence.Over(members, Heard(501)));
  members.Find("b")->last_heard = milliseconds(59'999);
  CHECK_FALSE(fence.Over(members, Heard(59'999)));
  CHECK(fence.Over(members, Heard(60'000)));
  fence.Excuse(milliseconds(1));
  CHECK_FALSE(fence.Over(members, Heard(60'000)));
  members.Remove("b");
  CHECK(fence.Over(members, Heard(0)));
}

TEST_CASE(
    "Fence: at a boundary a member of the ring is waited for until the "
    "step cannot end") {
  Membership members = MakeRing({"a", "b"});
  Fence fence(kFenceOptions);
  (void)fence.Begin({1, 2}, FenceWhen::kAtBoundary, "c joins", members, kAnybody, Heard(0));
  Answer(members, "a", 7);
  CHECK_FALSE(fence.Over(members, Heard(59'999)));
  CHECK_FALSE(fence.Overdue(Heard(59'999)));
  CHECK(fence.Overdue(Heard(60'000)));
  // One that came meanwhile has no step to end.
  Member joiner;
  joiner.attach.set_name("c");
  fence.Include(members.Add(std::move(joiner)), true);
  Answer(members, "b", 7);
  CHECK_FALSE(fence.Over(members, Heard(500)));
  CHECK(fence.Over(members, Heard(501)));
}

TEST_CASE(
    "Fence: of one that its neighbour accuses less silence is enough, "
    "while it lasts") {
  Membership members = MakeRing({"a", "b"});
  Fence fence(kFenceOptions);
  fence.Accuse("a", "b");
  CHECK_FALSE(fence.Silent(*members.Find("b"), Heard(400)));
  (void)fence.Begin({1, 2}, FenceWhen::kNow, "a suspects b", members, kAnybody, Heard(0));
  CHECK(fence.Silent(*members.Find("b"), Heard(400)));
  CHECK_FALSE(fence.Silent(*members.Find("a"), Heard(400)));
  fence.DropAccusation();
  CHECK_FALSE(fence.Silent(*members.Find("b"), Heard(400)));
}

TEST_CASE(
    "Fence: who answered it comes in the ring's order, then who holds "
    "more, then by name") {
  Membership members = MakeRing({"b", "a"});
  for (const char* const name : {"f", "e", "d", "c"}) {
    Member member;
    member.attach.set_name(name);
    member.role = Role::kReady;
    members.Add(std::move(member));
  }
  Fence fence(kFenceOptions);
  (void)fence.Begin({1, 2}, FenceWhen::kNow, "x", members, kAnybody, Heard(0));
  for (const char* const name : {"a", "b", "c", "d", "e"}) Answer(members, name, 0);
  Answer(members, "f", 9);
  Fence::Owe(*members.Find("e"), {1, 3});  // of another one
  CHECK(fence.Answered(members, kAnybody) == Names{"b", "a", "f", "c", "d"});
  CHECK(fence.Answered(members, [](const Member& m) { return m.name() != "a"; }) ==
        Names{"b", "f", "c", "d"});
}

TEST_CASE(
    "Fence: the link of two who both answered is not used, where a ring "
    "can avoid it") {
  Membership members = MakeRing({"a", "b", "c", "d"});
  const Names all = {"a", "b", "c", "d"};
  Fence fence = Accused(members);
  CHECK_FALSE(fence.JudgeAccusation(all, members, Heard(0)));
  const Fence::Seating seating = fence.Seat(all, members, Heard(0));
  REQUIRE(seating.ring.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const std::string &one = seating.ring[i], &next = seating.ring[(i + 1) % 4];
    CHECK(MakeBadPair(one, next) != MakeBadPair("a", "b"));
  }
  // A second time within 10 s one of them goes: of equals the later one.
  fence.End();
  fence.Accuse("a", "b");
  (void)fence.Begin({1, 3}, FenceWhen::kNow, "a suspects b", members, kAnybody, Heard(9'000));
  const auto link = fence.JudgeAccusation(all, members, Heard(9'000));
  REQUIRE(link);
  CHECK(link->out == "b");
}

TEST_CASE("Fence: an accusation counts once, and not when somebody was lost") {
  Membership members = MakeRing({"a", "b", "c"});
  Fence fence = Accused(members);
  CHECK_FALSE(fence.JudgeAccusation({"a", "b"}, members, Heard(0)));
  CHECK_FALSE(fence.JudgeAccusation({"a", "b", "c"}, members, Heard(0)));
  Fence other = Accused(members);
  CHECK_FALSE(other.JudgeAccusation({"a", "c"}, members, Heard(0)));
}

TEST_CASE(
    "Fence: where no ring avoids a bad link, its later end goes, but "
    "never the only holder") {
  Membership members = MakeRing({"a", "b", "c"});
  const Names all = {"a", "b", "c"};
  CHECK(Accused(members).JudgeAccusation(all, members, Heard(0))->out == "b");
  Fence fence = Accused(members);
  Answer(members, "b", 8);
  const auto link = fence.JudgeAccusation(all, members, Heard(0));
  REQUIRE(link);
  CHECK(link->out == "a");
  CHECK(link->why.find("a and b do not reach each other") == 0);
  // It is still bad when the next ring is seated.
  const Fence::Seating seating = fence.Seat({"a", "b"}, members, Heard(0));
  CHECK(seating.ring.empty());
  CHECK(seating.out == "a");  // b holds more
  // Who joins later is on no bad link, and would go in vain.
  CHECK(fence.Seat(all, members, Heard(20'000)).out == "a");
  fence.Forget("a");
  CHECK(fence.Seat({"a", "b"}, members, Heard(0)).ring == Names{"a", "b"});
}

}  // namespace
}  // namespace ringmaster::coordinator
