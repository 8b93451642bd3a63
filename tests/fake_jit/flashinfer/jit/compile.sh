# compile.sh -c SOURCE -o OBJECT: runs the source, and takes down what is compiled when.
echo "begins $(basename "$2") $(date +%s.%N)" >> "$FAKE_SOURCES/log"
sh "$2" || exit 1
cp "$2" "$4"
echo "ends $(basename "$2") $(date +%s.%N)" >> "$FAKE_SOURCES/log"
