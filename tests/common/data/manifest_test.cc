#include "common/data/manifest.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

const std::string kDigest(64, 'a');

std::string ManifestText(const std::string& files) {
  return R"({"format": 1, "piece_bytes": 8388608, "files": [)" + files + "]}";
}

std::string Entry(const std::string& name, uint64_t bytes, size_t pieces) {
  std::string list;
  for (size_t i = 0; i < pieces; ++i) list += (i == 0 ? "\"" : ", \"") + kDigest + "\"";
  return R"({"name": ")" + name + R"(", "bytes": )" + std::to_string(bytes) + R"(, "pieces": [)" +
         list + "]}";
}

std::string ManifestError(const std::string& text) {
  const auto parsed = ParseDataManifest(text);
  if (parsed.ok()) return "valid";
  CHECK(parsed.status().code() == absl::StatusCode::kInvalidArgument);
  return Message(parsed.status());
}

bool Says(const std::string& text, const std::string& words) {
  const std::string error = ManifestError(text);
  INFO(error);
  const bool found = error.find(words) != std::string::npos;
  CHECK(found);
  return found;
}

void WriteFile(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

TEST_CASE("Manifest: what is written is read, sorted by name") {
  const auto parsed = ParseDataManifest(ManifestText(
      Entry("b/c", 8388609, 2) + ", " + Entry("a", 0, 0) + "," + Entry("ü \\\"", 1, 1)));
  REQUIRE(parsed.ok());
  REQUIRE(parsed->size() == 3);
  CHECK((*parsed)[0].name == "a");
  CHECK((*parsed)[1].bytes == 8388609);
  CHECK((*parsed)[1].pieces.size() == 2);
  CHECK((*parsed)[2].name == "ü \"");
  CHECK(*ParseDataManifest(PrintDataManifest(*parsed)) == *parsed);
}

TEST_CASE("Manifest: as many pieces as the size needs") {
  for (const auto& [bytes, pieces] : std::vector<std::pair<uint64_t, size_t>>{
           {0, 1}, {1, 0}, {1, 2}, {8388608, 2}, {8388609, 1}, {UINT64_MAX, 1}}) {
    INFO(bytes << " " << pieces);
    CHECK(Says(ManifestText(Entry("a", bytes, pieces)), "pieces, expected"));
  }
  CHECK(ManifestError(ManifestText(Entry("a", 8388608, 1))) == "valid");
}

TEST_CASE("Manifest: names stay in their folder, each once") {
  Says(ManifestText(Entry("../a", 1, 1)), "leaves its folder by `..`");
  Says(ManifestText(Entry("/a", 1, 1)), "has an empty part");
  Says(ManifestText(Entry("a\\u0000", 1, 1)), "control characters");
  Says(ManifestText(Entry("a", 1, 1) + "," + Entry("a", 1, 1)), "\"a\" is there twice");
  Says(ManifestText(Entry("a", 1, 1) + "," + Entry("a/b", 1, 1)), "\"a\" is a file");
  Says(ManifestText(Entry("ringmaster-data.json", 1, 1)), "lists itself");
}

TEST_CASE("Manifest: one shape and no other") {
  Says("", "no JSON");
  Says(ManifestText(""), "at least one");
  Says("[]", "[ where none is expected");
  Says("{}", "expected an object of format");
  Says(ManifestText(Entry("a", 1, 1)) + "x", "no JSON");
  Says(R"({"format": 2)", "format is 2, expected 1");
  Says(R"({"format": 1, "piece_bytes": 4096)", "piece_bytes is 4096, expected 8388608");
  Says(R"({"format": 1, "format": 1)", "key \"format\" is unknown, or there twice");
  Says(R"({"format": 1, "more": 1)", "key \"more\" is unknown");
  Says(R"({"format": 1, "files": {}})", "{ where `files` is expected");
  Says(R"({"format": 1, "piece_bytes": 8388608, "files": [1]})", "a number where none is expected");
  Says(ManifestText(R"({"name": "a", "bytes": 1, "bytes": 1})"), "there twice");
  Says(ManifestText(R"({"name": "a", "bytes": 1})"), "lacks one of name, bytes and pieces");
  Says(ManifestText(R"({"name": "a", "bytes": -1})"), "a negative number in file 1");
  Says(ManifestText(R"({"name": "a", "bytes": 1.5})"), "the number 1.5 in file 1");
  Says(ManifestText(R"({"name": 1})"), "a number in file 1 where `name` is expected");
  Says(ManifestText(R"({"name": "a", "bytes": 1, "pieces": ["abc"]})"), "expected a SHA-256");
  Says(ManifestText(R"({"name": "a", "bytes": 1, "pieces": [[]]})"), "[ in file 1");
  Says(ManifestText(R"({"name": "a", "bytes": 1, "pieces": [")" + std::string(64, 'A') + "\"]}"),
       "expected a SHA-256");
  Says(ManifestText(R"({"name": {"a": 1}})"), "{ in file 1 where `name` is expected");
  Says(std::string(100'000, '['), "[ where none is expected");
  Says("\"\xff\"", "no JSON");
}

TEST_CASE("Manifest: of a folder, the same whoever makes it") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  std::string large(kManifestPieceBytes + 1, 'x');
  WriteFile(root / "b/large.bin", large);
  WriteFile(root / "a-b", "one");
  WriteFile(root / "a/b", "");
  WriteFile(root / ".hidden/x", "no");
  WriteFile(root / kDataManifestName, "no");
  const auto made = MakeDataManifest(folder.path());
  REQUIRE(made.ok());
  REQUIRE(made->size() == 3);
  CHECK((*made)[0] == ManifestFile{"a-b", 3, {Sha256Of("one")}});
  CHECK((*made)[1] == ManifestFile{"a/b", 0, {}});
  CHECK((*made)[2] ==
        ManifestFile{"b/large.bin", large.size(), {Sha256Of(large.substr(1)), Sha256Of("x")}});
  CHECK(*ParseDataManifest(PrintDataManifest(*made)) == *made);

  CHECK(Differences(*made, *made).empty());
  large[large.size() - 1] = 'y';
  WriteFile(root / "b/large.bin", large);
  std::filesystem::remove(root / "a-b");
  WriteFile(root / "c", "new");
  const auto lines = Differences(*made, *MakeDataManifest(folder.path()));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "a-b: the manifest lists it, but it is not there");
  CHECK(lines[1].find("b/large.bin: from byte 8388608 on") == 0);
  CHECK(lines[2] == "c: it is there, but the manifest does not list it");
}

TEST_CASE("Manifest: folders that cannot have one") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  CHECK(Message(MakeDataManifest(folder.path()).status()).find("there are no files in it") !=
        std::string::npos);
  CHECK(MakeDataManifest((root / "none").string()).status().code() == absl::StatusCode::kNotFound);
  WriteFile(root / "a\nb", "x");
  CHECK(Message(MakeDataManifest(folder.path()).status()).find("control characters") !=
        std::string::npos);
  std::filesystem::remove(root / "a\nb");
  std::filesystem::create_directory_symlink(".", root / "loop");
  CHECK(MakeDataManifest(folder.path()).status().code() == absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(root / "loop");
  std::string deep = "d";
  for (int i = 0; i < 64; ++i) deep += "/d";
  WriteFile(root / deep / "x", "x");
  CHECK(Message(MakeDataManifest(folder.path()).status()).find("more than 64 deep") !=
        std::string::npos);
}

}  // namespace
}  // namespace ringmaster::data
