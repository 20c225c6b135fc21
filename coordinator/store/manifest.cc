#include "coordinator/store/manifest.h"

#include "common/files.h"
#include "common/json.h"
#include "common/sha256.h"

namespace ringmaster::coordinator {
namespace {

constexpr uint64_t kFormat = 1;

Manifest Read(const nlohmann::json& json) {
  Manifest manifest;
  manifest.step = WholeNumber(json.at("step"));
  manifest.result_digest = json.at("result_digest").get<std::string>();
  manifest.digest = json.at("digest").get<std::string>();
  for (const nlohmann::json& file : json.at("files")) {
    manifest.files[file.at("name").get<std::string>()] = {WholeNumber(file.at("bytes")),
                                                          file.at("sha256").get<std::string>()};
  }
  for (const nlohmann::json& map : json.value("class_maps", nlohmann::json::array())) {
    v1::ClassMap& made = *manifest.class_maps.Add();
    made.set_step(WholeNumber(map.at("step")));
    made.set_before_evaluation(map.at("before_evaluation").get<bool>());
    for (const auto& [name, shards] : map.at("classes").items()) {
      v1::MappedClass& its = *made.add_classes();
      its.set_class_(name);
      its.set_shards(static_cast<uint32_t>(WholeNumber(shards)));
    }
  }
  return manifest;
}

}  // namespace

StatusOr<Manifest> ParseManifest(const std::string& text) {
  const StatusOr<nlohmann::json> parsed = ParseJson(text, {.bytes = kMaxManifestBytes});
  if (!parsed.ok()) {
    return InvalidArgument("{} cannot be read: {}", kManifestName, Message(parsed.status()));
  }
  // The JSON library throws; its exceptions end here.
  try {
    const nlohmann::json& json = *parsed;
    if (const uint64_t format = WholeNumber(json.at("format")); format != kFormat) {
      return InvalidArgument("{} has format {}, expected {}", kManifestName, format, kFormat);
    }
    Manifest manifest = Read(json);
    for (const std::string* digest : {&manifest.result_digest, &manifest.digest}) {
      if (!digest->empty() && FromHex(*digest)) continue;
      return InvalidArgument("{} has the digest \"{}\", expected lower-case hex", kManifestName,
                             digest->substr(0, 100));
    }
    for (const auto& [name, file] : manifest.files) {
      if (!IsPlainFileName(name) || name == kManifestName) {
        return InvalidArgument("{} lists a file that may not be called \"{}\"", kManifestName,
                               name);
      }
    }
    if (manifest.files.size() != json.at("files").size() || manifest.files.empty()) {
      return InvalidArgument("{} lists no file, or one of them twice", kManifestName);
    }
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("{} cannot be read: {}", kManifestName, error.what());
  }
}

}  // namespace ringmaster::coordinator
