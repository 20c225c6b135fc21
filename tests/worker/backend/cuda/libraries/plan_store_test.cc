// Plans that are kept for the next process, in a file that may be anybody's or broken.
#include "worker/backend/cuda/libraries/plan_store.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace ringmaster::cuda {
namespace {

const StoredPlan kOne = {{{.fused = true}, {37, {{2, 11}}}}, std::string("{\"a\":\n1}\0\n", 10)};
const StoredPlan kOther = {{{}, {4, {}}}, ""};

struct Shelf {
  TemporaryFolder folder;
  std::string path = folder / "plans";
  [[nodiscard]] std::unique_ptr<PlanStore> Open(const std::string& identity = "cuDNN 9",
                                                size_t most = PlanStore::kMostBytes) const {
    return PlanStore::Open(path, identity, most);
  }
  void Fill() const {
    const auto store = Open();
    store->Put("one", kOne);
    store->Put("other", kOther);
    REQUIRE(Message(store->Save()) == "");
  }
};

}  // namespace

TEST_CASE("PlanStore: the next process finds what was saved, byte by byte") {
  const Shelf shelf;
  CHECK_FALSE(shelf.Open()->Find("one"));
  shelf.Fill();
  const auto store = shelf.Open();
  CHECK(store->Find("one") == kOne);
  CHECK(store->Find("other") == kOther);
  CHECK_FALSE(store->Find("third"));
}

TEST_CASE("PlanStore: a file of another library, GPU or build is not read, and replaced") {
  const Shelf shelf;
  shelf.Fill();
  const auto store = shelf.Open("cuDNN 10");
  CHECK_FALSE(store->Find("one"));
  store->Put("one", kOther);
  REQUIRE(store->Save().ok());
  CHECK(shelf.Open("cuDNN 10")->Find("one") == kOther);
  CHECK_FALSE(shelf.Open()->Find("one"));
}

TEST_CASE("PlanStore: whatever byte of the file is wrong or missing, nothing is read from it") {
  const Shelf shelf;
  shelf.Fill();
  const std::string good = ReadWhole(shelf.path);
  for (size_t i = 0; i < good.size(); ++i) {
    INFO(i);
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    WriteWhole(shelf.path, bad);
    CHECK_FALSE(shelf.Open()->Find("one"));
    WriteWhole(shelf.path, good.substr(0, i));
    CHECK_FALSE(shelf.Open()->Find("one"));
  }
  WriteWhole(shelf.path, good);
  CHECK(shelf.Open()->Find("one") == kOne);
}

TEST_CASE("PlanStore: where nothing is new nothing is written") {
  const Shelf shelf;
  REQUIRE(shelf.Open()->Save().ok());
  CHECK_FALSE(std::filesystem::exists(shelf.path));
  shelf.Fill();
  const auto store = shelf.Open();
  CHECK(store->Find("one"));
  std::filesystem::remove(shelf.path);
  REQUIRE(store->Save().ok());
  CHECK_FALSE(std::filesystem::exists(shelf.path));
}

TEST_CASE("PlanStore: a file that would be too large keeps what this process asked for") {
  const Shelf shelf;
  const StoredPlan large = {{}, std::string(400, 'x')};
  for (const char* key : {"a", "b", "c"}) {
    const auto store = shelf.Open("cuDNN 9", 1000);
    if (std::string(key) == "c") CHECK(store->Find("b") == large);
    store->Put(key, large);
    REQUIRE(store->Save().ok());
  }
  const auto store = shelf.Open("cuDNN 9", 1000);
  CHECK_FALSE(store->Find("a"));
  CHECK(store->Find("b") == large);
  CHECK(store->Find("c") == large);
}

TEST_CASE("PlanStore: a folder that is not there is an error of saving alone") {
  const Shelf shelf;
  const auto store = PlanStore::Open(shelf.folder / "none/plans", "cuDNN 9");
  store->Put("one", kOne);
  CHECK_FALSE(store->Save().ok());
  CHECK(store->Find("one") == kOne);
}

}  // namespace ringmaster::cuda
