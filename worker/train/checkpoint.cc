#include "worker/train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/job/resolve.h"
#include "common/json.h"
#include "worker/train/state_tensors.h"

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
  Sha256Digest digest{};
  const auto nibble = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (hex.size() != 2 * digest.size()) return DataLoss("a digest of another length than 64");
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = nibble(hex[2 * i]);
    const int low = nibble(hex[2 * i + 1]);
    if (high < 0 || low < 0) return DataLoss("a digest that is not lower-case hex");
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return digest;
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
    facts.step = manifest.at("step").get<uint64_t>();
    facts.exact = manifest.at("exact").get<bool>();
    RING_ASSIGN_OR_RETURN(facts.digest, ParseDigest(manifest.at("digest").get<std::string>()));
    RING_ASSIGN_OR_RETURN(facts.result_digest,
                          ParseDigest(manifest.at("result_digest").get<std::string>()));
    return facts;
  } catch (const Json::exception& error) {
    return DataLoss("manifest.json: {}", error.what());
  }
}

StatusOr<std::vector<std::string>> FileNames(const Json& manifest) {
  try {
    std::vector<std::string> names;
    for (const Json& entry : manifest.at("files")) {
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
  const Sha256Digest sha = Sha256Of(file.bytes);
  return {{"name", file.name}, {"bytes", file.bytes.size()}, {"sha256", Hex(sha)}};
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

StatusOr<std::vector<CheckpointFile>> CopyState(const State& state) {
  std::vector<CheckpointFile> files;
  const Scalars scalars = ScalarsOf(state);
  for (const auto& [name, views] : TensorsOf(state, scalars)) {
    RING_ASSIGN_OR_RETURN(std::string bytes, WriteSafetensors(views));
    files.push_back({name, std::move(bytes)});
  }
  return files;
}

Status SetState(const std::vector<CheckpointFile>& files, State* state) {
  std::map<std::string, TensorViews> found;
  for (const CheckpointFile& file : files) {
    if (file.name == kManifestName) continue;
    StatusOr<TensorViews> views = ReadSafetensors(file.bytes);
    RING_RETURN_IF_ERROR(Annotate(views.status(), file.name));
    found.emplace(file.name, *std::move(views));
  }
  return SetTensors(found, state);
}

Checkpoint Seal(const ManifestFacts& facts, std::vector<CheckpointFile> files) {
  std::ranges::sort(files, {}, &CheckpointFile::name);
  Json manifest = {{"format", kFormat},           {"step", facts.step},
                   {"digest", Hex(facts.digest)}, {"result_digest", Hex(facts.result_digest)},
                   {"exact", facts.exact},        {"files", Json::array()}};
  for (const CheckpointFile& file : files) manifest["files"].push_back(EntryOf(file));
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
  const std::filesystem::path path(folder);
  RING_ASSIGN_OR_RETURN(std::string text, ReadFile((path / kManifestName).string()));
  RING_ASSIGN_OR_RETURN(const Json manifest, ParseManifest(text));
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, FileNames(manifest));
  Checkpoint checkpoint;
  for (const std::string& name : names) {
    RING_ASSIGN_OR_RETURN(std::string bytes, ReadFile((path / name).string()));
    checkpoint.files.push_back({name, std::move(bytes)});
  }
  checkpoint.manifest_sha256 = Hex(Sha256Of(text));
  checkpoint.files.push_back({kManifestName, std::move(text)});
  RING_ASSIGN_OR_RETURN(const ManifestFacts facts, VerifyCheckpoint(checkpoint));
  checkpoint.step = facts.step;
  return checkpoint;
}

Status RestoreState(const Checkpoint& checkpoint, const v1::ResultSpec& spec, State* state) {
  RING_ASSIGN_OR_RETURN(const ManifestFacts facts, VerifyCheckpoint(checkpoint));
  const Sha256Digest expected = job::ResultDigest(spec);
  if (facts.result_digest != expected) {
    return FailedPrecondition("the checkpoint belongs to another job: expected {}, got {}",
                              Hex(expected), Hex(facts.result_digest));
  }
  RING_RETURN_IF_ERROR(SetState(checkpoint.files, state));
  if (state->step == facts.step && state->digest == facts.digest) return absl::OkStatus();
  return DataLoss("step or digest of manifest.json and state.safetensors differ");
}

}  // namespace ringmaster::worker
