#include "common/sha256.h"

#include <catch2/catch.hpp>

#include "tests/support/temporary_folder.h"

namespace ringmaster {
namespace {

constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST_CASE("SHA-256: FIPS 180's examples come out") {
  CHECK(Hex(Sha256Of("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Hex(Sha256Of("abc")) == kAbc);
}

TEST_CASE("SHA-256: pieces hash like the whole, and Finish starts afresh") {
  Sha256 hash;
  hash.Update("a", 1);
  hash.Update(std::string("bc"));
  CHECK(Hex(hash.Finish()) == kAbc);
  hash.Update(std::string("abc"));
  CHECK(Hex(hash.Finish()) == kAbc);
}

TEST_CASE("SHA-256: hex and back; what is no lower-case hex of whole bytes is nothing") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(Hex(std::string("\x00\x1f\xa9\xff", 4)) == "001fa9ff");
  CHECK(FromHex(Hex(all)) == all);
  CHECK(FromHex("") == "");
  for (const char* bad : {"0", "001", "0G", "0 ", "-1", "0x12", "AB", "aB"}) {
    INFO(bad);
    CHECK_FALSE(FromHex(bad));
  }
  CHECK_FALSE(FromHex(std::string("0\0", 2)));
  CHECK(DigestFromHex(kAbc) == Sha256Of("abc"));
  CHECK_FALSE(DigestFromHex(std::string(kAbc) + "00"));
  CHECK_FALSE(DigestFromHex(std::string(kAbc).substr(2)));
  CHECK_FALSE(DigestFromHex(""));
}

TEST_CASE("SHA-256: a file hashes like its content, a missing one is named") {
  const TemporaryFolder folder;
  const std::string content(3'000'000, 'x');
  WriteWhole(folder / "file", content);
  CHECK(*Sha256HexOfFile(folder / "file") == Hex(Sha256Of(content)));
  const auto missing = Sha256HexOfFile(folder / "gone");
  CHECK(missing.status().code() == absl::StatusCode::kNotFound);
  CHECK(Message(missing.status()) ==
        "cannot open " + folder.path() + "/gone: No such file or directory");
}

}  // namespace
}  // namespace ringmaster
