#include "coordinator/logic/run/membership.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

namespace ringmaster::coordinator {
namespace {

Member MakeMember(const std::string& name, const std::string& incarnation) {
  Member member;
  member.attach.set_name(name);
  member.attach.set_incarnation(incarnation);
  return member;
}

Membership MakeTrio() {
  Membership members;
  for (const char* const name : {"a", "b", "c"}) members.Add(MakeMember(name, "1"));
  members.SetRing({{"c", "1", "", {}}, {"a", "1", "", {}}, {"b", "1", "", {}}});
  return members;
}

TEST_CASE("Membership: a member is found by its name, whoever went before it") {
  Membership members = MakeTrio();
  members.Remove("a");
  members.Remove("nobody");
  REQUIRE(members.size() == 2);
  CHECK(members.Find("a") == nullptr);
  REQUIRE(members.Find("c") != nullptr);
  CHECK(members.Find("c")->name() == "c");
  CHECK(members.Find("b")->name() == "b");
  members.Add(MakeMember("d", "1"));
  CHECK(members.Find("d")->name() == "d");
  CHECK(members.front().name() == "b");
}

TEST_CASE("Membership: a place is that of a process, not of a name") {
  Membership members = MakeTrio();
  CHECK(members.RankOf("c") == size_t{0});
  CHECK(members.RankOf("b") == size_t{2});
  CHECK(members.RankOf("nobody") == std::nullopt);
  members.Remove("b");
  CHECK(members.RankOf("b") == std::nullopt);
  CHECK(members.At(members.ring()[2]) == nullptr);
  members.Add(MakeMember("b", "2"));
  CHECK(members.RankOf("b") == std::nullopt);
  members.Recognize("b", "2");
  CHECK(members.RankOf("b") == size_t{2});
  CHECK(members.At(members.ring()[2])->incarnation() == "2");
}

TEST_CASE("Membership: a new ring takes the place of the one before, which comes back") {
  Membership members = MakeTrio();
  const std::vector<Place> before = members.SetRing({{"b", "1", "", {}}});
  REQUIRE(before.size() == 3);
  CHECK(before[0].name == "c");
  CHECK(members.RankOf("b") == size_t{0});
  CHECK(members.RankOf("a") == std::nullopt);
  CHECK(members.At(before[1])->name() == "a");
}

}  // namespace
}  // namespace ringmaster::coordinator
