"""Words that keys are made of."""

ADJECTIVES = (
    "amber", "ancient", "brisk", "broad", "calm", "clever", "coastal", "copper", "crimson", "curly",
    "distant", "dusty", "eager", "eastern", "faded", "frosty", "gentle", "gilded", "golden", "hollow",
    "humble", "indigo", "ivory", "jolly", "lively", "lunar", "marble", "mellow", "misty", "narrow",
    "northern", "olive", "patient", "polished", "quiet", "rapid", "rugged", "rustic", "scarlet", "silent",
    "silver", "slender", "solemn", "southern", "steady", "sturdy", "sunny", "velvet", "violet", "woven",
)  # fmt: skip
NOUNS = (
    "anchor", "badger", "beacon", "bridge", "candle", "canyon", "castle", "cedar", "comet", "compass",
    "falcon", "ferry", "fiddle", "garden", "glacier", "hammer", "harbor", "heron", "island", "kettle",
    "ladder", "lantern", "lemon", "lobster", "magnet", "meadow", "mirror", "mitten", "orchard", "otter",
    "paddle", "parrot", "pebble", "pepper", "pigeon", "pillow", "planet", "puzzle", "rocket", "saddle",
    "sparrow", "spoon", "teapot", "thistle", "tunnel", "turnip", "violin", "walnut", "whistle", "willow",
)  # fmt: skip
