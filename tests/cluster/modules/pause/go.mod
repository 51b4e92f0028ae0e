module steelyard.dev/tests/cluster/pause

go 1.26.0

tool steelyard.dev/tests/cluster/pause
