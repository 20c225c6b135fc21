#include "worker/state/manifest.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/json.h"

namespace ringmaster::worker {
namespace {

using Json = nlohmann::json;  // objects are sorted by key
constexpr int kFormat = 1;

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error(absl::StatusCode::kNotFound, "{} cannot be opened", path);
  std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) return Error(absl::StatusCode::kDataLoss, "{} cannot be read", path);
  return bytes;
}

StatusOr<Sha256Digest> ParseDigest(const std::string& hex) {
  if (const auto digest = DigestFromHex(hex)) return *digest;
  return DataLoss("a digest that is not 64 digits of lower-case hex");
}

StatusOr<Json> ParseManifest(const std::string& text) {
  StatusOr<Json> parsed = ParseJson(text, {});
  if (!parsed.ok()) return DataLoss("manifest.json: {}", Message(parsed.status()));
  Json& manifest = *parsed;
  if (!manifest.is_object()) return DataLoss("manifest.json is not a JSON object");
  if (manifest.value("format", Json()) != kFormat) {
    return Error(absl::StatusCode::kDataLoss, "manifest.json is not of format {}", kFormat);
  }
  return manifest;
}

StatusOr<ManifestFacts> FactsOf(const Json& manifest) {
  try {
    ManifestFacts facts;
    facts.step = WholeNumber(manifest.at("step"));
    facts.exact = manifest.at("exact").get<bool>();
    RING_ASSIGN_OR_RETURN(facts.digest, ParseDigest(manifest.at("digest").get<std::string>()));
    RING_ASSIGN_OR_RETURN(facts.result_digest,
                          ParseDigest(manifest.at("result_digest").get<std::string>()));
    facts.model_digest = manifest.at("model_digest").get<std::string>();
    return facts;
  } catch (const Json::exception& error) {
    return DataLoss("manifest.json: {}", error.what());
  }
}

StatusOr<std::vector<std::string>> FileNames(const Json& manifest) {
  try {
    std::vector<std::string> names;
    const Json& files = manifest.at("files");
    if (!files.is_array()) return DataLoss("manifest.json: files is no list");
    for (const Json& entry : files) {
      names.push_back(entry.at("name").get<std::string>());
      const bool plain = !names.back().empty() && names.back() != "." && names.back() != ".." &&
                         names.back().find('/') == std::string::npos;
      if (!plain) return DataLoss("manifest.json names a file outside its folder");
    }
    return names;
  } catch (const Json::exception& error) {
    return DataLoss("manifest.json: {}", error.what());
  }
}

Json EntryOf(const CheckpointFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes.size()}, {"sha256", Hex(Sha256Of(file.bytes))}};
}

Status CheckFiles(const Json& manifest, const Checkpoint& checkpoint) {
  const Json& entries = manifest.at("files");
  if (entries.size() + 1 != checkpoint.files.size()) {
    return Error(absl::StatusCode::kDataLoss, "the manifest names {} files, there are {}",
                 entries.size(), checkpoint.files.size() - 1);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const Json found = EntryOf(checkpoint.files[i]);
    if (found == entries[i]) continue;
    return Error(absl::StatusCode::kDataLoss,
                 "{} is not what the manifest says: expected {}, got {}", checkpoint.files[i].name,
                 entries[i].dump(), found.dump());
  }
  return absl::OkStatus();
}

}  // namespace

Checkpoint Seal(const ManifestFacts& facts, std::vector<CheckpointFile> files) {
  std::ranges::sort(files, {}, &CheckpointFile::name);
  Json manifest = {{"format", kFormat},           {"step", facts.step},
                   {"digest", Hex(facts.digest)}, {"result_digest", Hex(facts.result_digest)},
                   {"exact", facts.exact},        {"model_digest", facts.model_digest},
                   {"files", Json::array()}};
  for (const CheckpointFile& file : files) manifest["files"].push_back(EntryOf(file));
  for (const v1::ClassMap& map : facts.class_maps) {
    Json& entry = manifest["class_maps"].emplace_back();
    entry = {{"step", map.step()}, {"before_evaluation", map.before_evaluation()}};
    for (const auto& each : map.classes()) entry["classes"][each.class_()] = each.shards();
  }
  if (const v1::ContinueFacts& from = facts.continues; from.step() > 0) {
    manifest["continues"] = {{"step", from.step()}, {"manifest_sha256", from.manifest_sha256()}};
  }
  Checkpoint checkpoint;
  checkpoint.step = facts.step;
  checkpoint.files = std::move(files);
  checkpoint.files.push_back({kManifestName, manifest.dump() + "\n"});
  checkpoint.manifest_sha256 = Hex(Sha256Of(checkpoint.files.back().bytes));
  return checkpoint;
}

StatusOr<ManifestFacts> VerifyCheckpoint(const Checkpoint& checkpoint) {
  if (checkpoint.files.empty() || checkpoint.files.back().name != kManifestName) {
    return DataLoss("a checkpoint without manifest.json");
  }
  RING_ASSIGN_OR_RETURN(const Json manifest, ParseManifest(checkpoint.files.back().bytes));
  RING_ASSIGN_OR_RETURN(ManifestFacts facts, FactsOf(manifest));
  RING_RETURN_IF_ERROR(FileNames(manifest).status());
  RING_RETURN_IF_ERROR(CheckFiles(manifest, checkpoint));
  return facts;
}

StatusOr<Checkpoint> ReadCheckpointFolder(const std::string& folder) {
  RING_ASSIGN_OR_RETURN(std::string text, ReadFile(folder + "/" + kManifestName));
  RING_ASSIGN_OR_RETURN(const Json manifest, ParseManifest(text));
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, FileNames(manifest));
  Checkpoint checkpoint;
  for (const std::string& name : names) {
    RING_ASSIGN_OR_RETURN(std::string bytes, ReadFile(folder + "/" + name));
    checkpoint.files.push_back({name, std::move(bytes)});
  }
  checkpoint.manifest_sha256 = Hex(Sha256Of(text));
  checkpoint.files.push_back({kManifestName, std::move(text)});
  RING_ASSIGN_OR_RETURN(const ManifestFacts facts, VerifyCheckpoint(checkpoint));
  checkpoint.step = facts.step;
  return checkpoint;
}

}  // namespace ringmaster::worker
